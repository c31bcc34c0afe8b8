"""The scopes of the rule of today: one for each feature (docs/reference/today.md)."""

from collections.abc import Mapping, Sequence

from ...model.ops import Group, Shape
from .today import TodayScope


def _shape(groups: Sequence[Group], blocks: int, length: int, unit: int, hashes: int, **switches: object) -> Shape:
    return Shape(tuple(groups), blocks, length, hashes, unit, length, **switches)  # type: ignore[arg-type]


def _texts(*prompts: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, prompt)) for prompt in prompts)


_STATES = Group("mamba", 2, mamba_mode="align")
_ALL = (
    TodayScope(
        "inside-blocks",
        _shape([Group("full", 2), _STATES], 8, 8, 2, 1),
        _texts("0000"),
        ("hit inside a block", "shadow: blocks copied"),
        chunks=(3, 9),
    ),
    TodayScope(
        "states-for-a-connector",
        _shape([Group("full", 2), _STATES], 8, 8, 2, 1),
        _texts("000", "00001"),
        ("lookup for a connector", "states end before a hit"),
        requests=1,
        chunks=(9,),
        external=(2,),
        for_connector=True,
    ),
    TodayScope(
        "checkpoints",
        _shape([Group("full", 2), Group("mamba", 2, mamba_mode="align", checkpoint=1)], 9, 10, 2, 1),
        _texts("00000"),
        ("checkpoint inside a step",),
        chunks=(9,),
    ),
    TodayScope(
        "retention",
        _shape([Group("full", 1), Group("sliding", 1, window=2)], 11, 8, 1, 1, retention_interval=0),
        _texts("0000", "0010"),
        ("shared prefix goes on",),
        chunks=(9,),
    ),
    TodayScope(
        "watermark",
        _shape([Group("full", 2)], 5, 8, 2, 2, watermark=1),
        _texts("0000", "111"),
        ("refused by watermark",),
        chunks=(9,),
        alone=True,
    ),
    TodayScope(
        "kept-blocks",
        _shape([Group("full", 2)], 5, 8, 2, 2),
        _texts("000"),
        ("blocks kept beyond their request", "blocks read on", "reader told of a block"),
        chunks=(9,),
        keeps=True,
    ),
    TodayScope(
        "names-ahead",
        _shape([Group("full", 2)], 6, 8, 2, 2, eagle=True),
        _texts("00000", "00001"),
        ("names look ahead", "hit"),
        chunks=(9,),
    ),
    TodayScope(
        "gap",
        _shape([Group("rswa", 1, window=2)], 9, 8, 1, 1),
        _texts("0"),
        ("null entries made",),
        requests=1,
        outputs=5,
        chunks=(9,),
    ),
    TodayScope(
        "ring",
        _shape([Group("full", 2), Group("ring", 1)], 7, 8, 2, 2),
        _texts("0000", "001"),
        ("hit", "shadow: rings read back"),
        chunks=(9,),
    ),
)
SCOPES_OF_TODAY: Mapping[str, TodayScope] = {scope.name: scope for scope in _ALL}
