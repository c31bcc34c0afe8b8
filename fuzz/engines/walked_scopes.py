"""All scopes of `explore`, those of the rule of today among them: one for each feature (docs/reference/today.md)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from ...model.ops import Group, Shape
from ..exploration import checkpoint, session
from ..exploration.scope import Scope
from ..exploration.scopes import SCOPES
from ..exploration.search import Exploration, Limits, Search
from ..exploration.workers import Jobs
from ..opening.targets import open_target
from .walked import TodayScope, TodaySearch


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
        _shape([Group("full", 1), Group("sliding", 1, window=2)], 10, 6, 1, 1, retention_interval=0),
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
AnyScope: TypeAlias = Scope | TodayScope
EVERY_SCOPE: Mapping[str, AnyScope] = {**SCOPES, **SCOPES_OF_TODAY}
"""What `blockproof explore` explores if nothing is named."""
TODAY = "impl-today"
"""Our core that the scopes of the rule of today are explored with."""


def core_of(scope: AnyScope) -> str:
    """The core that the scope is explored with."""
    return TODAY if isinstance(scope, TodayScope) else "impl"


def named(names: Sequence[str], fault: str | None) -> list[AnyScope]:
    """As `session.named`, of all scopes."""
    if fault is not None:
        return [*session.named(names, fault)]
    return [EVERY_SCOPE[name] for name in names or EVERY_SCOPE]


def explored(
    scope: AnyScope,
    fault: str | None,
    limits: Limits,
    jobs: Jobs,
    folder: Path | None,
    on_progress: Callable[[Search | TodaySearch], None],
    write: checkpoint.Write,
) -> Exploration:
    """As `session.explored`; a scope of the rule of today is neither saved nor shared by processes."""
    if isinstance(scope, TodayScope):
        return TodaySearch(scope, open_target(TODAY)).run(limits, on_progress)
    return session.explored(scope, fault, limits, jobs, folder, on_progress, write)
