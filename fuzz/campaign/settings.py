"""What a campaign is: kept in its store, so that it can be resumed by the name of the file alone."""

import hashlib
from collections.abc import Iterator

import msgspec

from ..findings.oracle_names import CONTRACT, LIVENESS, LOCKSTEP, SHADOW
from .arms import Arm
from .tasks import Options

TASK_OPERATIONS = 4_000


class CampaignLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a campaign ends: at whichever comes first. Without any it goes on until Ctrl-C."""

    seconds: float | None = None
    """Of wall time."""
    operations: int | None = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was asked for when the campaign began."""

    seed: int
    targets: dict[str, tuple[str, ...]]
    """The oracles by target, in the order in which they were named."""
    attention: tuple[str, ...]
    engines: tuple[str, ...] = ("random",)
    task_operations: int = TASK_OPERATIONS
    options: Options = Options()
    limits: CampaignLimits = CampaignLimits()
    """Over all its sessions."""
    shares: CampaignLimits | None = None
    """What each target has, in equal shares for its attention types; None to go where news are."""
    allow_vacuous: bool = False
    """With `shares`: take it if runs test nothing."""
    out: str = "findings"
    """Folder for what is found."""

    def arms(self) -> Iterator[Arm]:
        """What the budget is shared among."""
        for target, oracles in self.targets.items():
            for judges in judged_together(oracles) if self.shares is None else [oracles]:
                for engine in self.engines:
                    yield from (Arm(target, attention, judges, engine) for attention in self.attention)


def joined(old: Settings, new: Settings) -> Settings:
    """The settings of a campaign that goes on with what was asked for now: targets may be added, limits and the folder
    may change. ValueError, in one line, if it would be another campaign.
    """
    for name, words in _FIXED.items():
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise ValueError(f"its campaign has {words} {_shown(before)}, not {_shown(now)}")
    for target, oracles in new.targets.items():
        if (before := old.targets.get(target, oracles)) != oracles:
            raise ValueError(f"its campaign judges {target} by {_shown(before)}, not by {_shown(oracles)}")
    return msgspec.structs.replace(new, targets=old.targets | new.targets)


_FIXED = {"seed": "seed", "attention": "attention", "engines": "engines", "task_operations": "operations of a task"}
"""What stays as it is, and what it is called."""


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def judged_together(oracles: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Which of the oracles judge the same runs: lockstep, the contract and liveness each need runs of their own kind.

    >>> list(judged_together(("lockstep", "shadow", "contract", "liveness")))
    [('lockstep', 'shadow'), ('shadow', 'contract'), ('liveness',)]
    """
    runs = {LOCKSTEP: (LOCKSTEP, SHADOW), CONTRACT: (SHADOW, CONTRACT), LIVENESS: (LIVENESS,)}
    additions = [name for name in oracles if name not in (LOCKSTEP, SHADOW, CONTRACT, LIVENESS)]
    kinds = [together for name, together in runs.items() if name in oracles] or [(SHADOW,)]
    for together in kinds:
        yield (*(name for name in together if name in oracles), *additions)


def seed_of(campaign: int, arm: Arm, count: int) -> int:
    """The seed of an arm's task of this number, counted from 0: the same whatever the other arms have been given."""
    return int.from_bytes(hashlib.sha256(f"{campaign}/{arm}/{count}".encode()).digest()[:4], "big")
