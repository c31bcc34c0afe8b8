"""The form of a trace file as JSON Schema, made from the types and limits that the loader reads with.

For editors, and for whoever reads or writes traces in another language. What it cannot say stands in `BEYOND`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from ...model.attention import RULES
from ...model.ops import Shape
from ..findings.oracle_names import ADDITIONS, EVERY
from ..findings.reading import MAX_FILE_BYTES
from ..findings.starved import EVERY_OPERATION
from .trace_file import (
    GROUP_LIMITS,
    MAX_BLOCK_OPERATIONS,
    MAX_GROUPS,
    MAX_NUMBER,
    MAX_PART_BYTES,
    MAX_POOL_TOKENS,
    POSITIVE_FOR,
    SCHEMA,
    SHAPE_LIMITS,
    Envelope,
    FoundWhat,
)

Json: TypeAlias = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
BEYOND: Mapping[str, str] = {
    "file-bytes": f"a file has at most {MAX_FILE_BYTES} bytes",
    "part-bytes": f"the shape and each operation have at most {MAX_PART_BYTES} bytes of JSON",
    "block-operations": f"num_blocks times operations is at most {MAX_BLOCK_OPERATIONS}",
    "pool-tokens": f"num_blocks times the largest block_size, times the ranks, is at most {MAX_POOL_TOKENS}",
    "written-whole": "an integer is written without a fraction and an exponent: 1, not 1.0 or 1e0",
    "digits": "an integer has at most 4300 digits",
    "characters": "a text has whole characters only, no half of a surrogate pair",
}
"""What the loader refuses besides, by name: sizes in bytes, products, and how a value is written."""


def trace_schema() -> Json:
    """The schema of a trace file, JSON-ready. A file that it accepts is read, or refused for something in `BEYOND`."""
    records = (Envelope, FoundWhat, Shape, *EVERY_OPERATION.values())
    _, made = msgspec.json.schema_components(records, ref_template="#/$defs/{name}")
    definitions: dict[str, Json] = {name: _closed(made[name]) for name in sorted(made)}
    envelope = definitions.pop("Envelope")
    del definitions["_Stored"]  # `FoundWhat` as it is read
    for name in ("Group", "Shape", "Item", *EVERY_OPERATION):
        _limit_numbers(definitions[name]["properties"])
    _finish_group(definitions["Group"])
    _finish_shape(definitions["Shape"])
    for name in EVERY_OPERATION:
        _tag(definitions[name], name)
    _finish_envelope(envelope["properties"])
    return {
        "$schema": DIALECT,
        "$id": f"urn:blockproof:trace:{SCHEMA}",
        "title": "A trace of blockproof",
        "description": "A shape, the operations applied to it, and what came of it (docs/reference/trace-format.md).",
        "$comment": "What a schema cannot say: " + "; ".join(BEYOND.values()) + ".",
        "type": "object",
        **{key: envelope[key] for key in ("required", "properties", "additionalProperties")},
        "$defs": definitions,
    }


def _closed(definition: Json) -> Json:
    """The schema of a record, with no other fields than it has."""
    return {**definition, "additionalProperties": False}


def _limit_numbers(part: Any) -> None:
    """Gives every integer in a part of a schema the limits that each number of a shape or an operation has."""
    if isinstance(part, dict):
        if part.get("type") == "integer":
            part.update(minimum=-MAX_NUMBER, maximum=MAX_NUMBER)
        for inner in part.values():
            _limit_numbers(inner)
    elif isinstance(part, list):
        for inner in part:
            _limit_numbers(inner)


def _finish_group(group: Json) -> None:
    for name, (least, most) in GROUP_LIMITS.items():
        group["properties"][name].update(minimum=least, maximum=most)
    group["allOf"] = [
        {
            "if": {"properties": {"kind": {"enum": sorted(kinds)}}, "required": ["kind"]},
            "then": {"properties": {name: {"minimum": 1}}, "required": [name]},
        }
        for name, kinds in POSITIVE_FOR.items()
    ]


def _finish_shape(shape: Json) -> None:
    for name, (least, most) in SHAPE_LIMITS.items():
        shape["properties"][name].update(minimum=least, maximum=most)
    shape["properties"]["groups"]["maxItems"] = MAX_GROUPS
    ranks = ("decode_parallel", "prefill_parallel")
    several = [{"properties": {name: {"minimum": 2}}, "required": [name]} for name in ranks]
    full = {"properties": {"kind": {"enum": sorted(kind for kind, rule in RULES.items() if rule.is_full)}}}
    one = {"properties": {"groups": {"minItems": 1, "maxItems": 1, "items": full}}}
    shape["allOf"] = [{"if": {"anyOf": several}, "then": one}]


def _tag(operation: Json, name: str) -> None:
    """Adds the field that names the kind of an operation."""
    operation["properties"] = {"op": {"const": name}, **operation["properties"]}
    operation["required"] = ["op", *operation.get("required", [])]


def _finish_envelope(fields: Json) -> None:
    """Fills in the parts that the loader reads one by one."""
    fields["schema"] = {"const": SCHEMA}
    fields["shape"] = {"$ref": "#/$defs/Shape"}
    fields["operations"]["items"] = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in EVERY_OPERATION]}
    fields["finding"] = {"anyOf": [{"$ref": "#/$defs/FoundWhat"}, {"type": "null"}], "default": None}
    fields["oracles"]["anyOf"][0]["items"] = {"enum": [*EVERY, *ADDITIONS]}
