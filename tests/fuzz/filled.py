"""A document of a type with something in every field: texts are drawn, everything else is small, and times go on."""

from collections.abc import Callable
from typing import Any

import msgspec.inspect as kinds


def filled(kind: Any, text: Callable[[], str]) -> Any:
    """JSON-ready data that can be read as this type, with `text()` in place of every text, names in maps included."""
    return _value(kinds.type_info(kind), text)


def _value(kind: kinds.Type, text: Callable[[], str]) -> Any:
    match kind:
        case kinds.StructType(fields=fields):
            return {field.encode_name: _value(field.type, text) for field in fields}
        case kinds.ListType(item_type=item) | kinds.VarTupleType(item_type=item):
            return [0.5, 1.5] if isinstance(item, kinds.FloatType) else [_value(item, text), _value(item, text)]
        case kinds.TupleType(item_types=items):
            return [_value(item, text) for item in items]
        case kinds.DictType(key_type=key, value_type=value):
            return {str(_value(key, text)): _value(value, text) for _ in range(3)}
        case kinds.UnionType(types=types):
            return _value(next(one for one in types if not isinstance(one, kinds.NoneType | kinds.CustomType)), text)
        case kinds.LiteralType(values=values):
            return values[0]
        case kinds.BoolType():
            return True
        case kinds.IntType(ge=least):
            return max(3, least or 0)
        case kinds.FloatType():
            return 0.5
    return text()
