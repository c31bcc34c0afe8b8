"""What differs between releases of vLLM, as far as a scheduler that calls the KV-cache core must know.

One record says how a release is called; the table says what changed when. What a record does not speak of is called in
every release by the names and in the way of 0.23.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Release:
    """How the core of a release is built and called."""

    since: str
    """The first minor version that is called like this."""
    token_limit: str
    """Keyword of the manager for how many tokens of a request may be under way, empty where it has none."""
    scheduler_block_size: bool
    """The manager is told where hits end; else they end at multiples of the least common block size."""
    eagle: Literal["whole", "groups", "lookahead"]
    """How drafting with hidden states is said: for the whole model; for the model or for flagged groups; not at all,
    since a block's hash covers the token behind it instead."""
    retention: Literal["none", "environment", "configuration", "keyword"]
    """Where the retention interval goes: nowhere; an environment variable read when the manager is built; a field of
    the KV-cache configuration; a keyword of the manager (our core)."""
    gate: Literal["method", "argument"]
    """The admission gate is asked before the allocation, or is an argument of it."""
    reserved_blocks: bool
    """An allocation can be told to leave blocks for others."""
    prepend: bool
    """Blocks can be put at the front of the free queue."""
    prompt_aware_skipping: bool
    """Removing skipped blocks asks for the length of the prompt."""
    in_flight: bool
    """Windows move on only over tokens of steps whose outcome is known: the scheduler counts the others."""
    boundary: bool
    """A lookup also yields where a prefix that others share ends; the scheduler notes it on the request, so that the
    state there is kept."""
    copies: bool
    """A hit may end inside a block; the manager then wants its content copied to a block of the request's own, and the
    scheduler drains these copies at the end of its step and gives back the two references that each of them holds."""
    records_lookups: bool
    """The scheduler reports the lookup of a request to the statistics when the request is admitted, not the lookup."""
    external_after_whole_blocks: bool
    """Tokens from outside follow whole blocks: the scheduler gives up the part of a hit that lies behind the last one
    and has it brought from outside too. An allocation that asks for both is refused without asking the core."""
    offers_boundary_states: bool
    """States at boundaries are offered to a connector in each step, and the scheduler drains the offers."""
    common_prefix: bool
    """Blocks common to all running requests are counted; else the answer is always 0."""
    caches_unaligned_states: bool
    """A cache of states can do without the mode `align`."""
    prefill_parallel: bool
    """Blocks are spread over the ranks of parallel prefill too."""
    events_name_groups: bool
    """An event says which group it is about."""
    kinds_missing: frozenset[str] = frozenset()
    """Kinds of groups that it has no spec for."""

    @property
    def lacks(self) -> frozenset[str]:
        """Operations, and fields of operations, shapes and groups, that it has no equivalent of. `Group.kind=tq` stands
        for groups of this kind, `Group.mamba_mode` for a cache of states in another mode than `align`."""
        missing = {
            "Allocate.reserved": not self.reserved_blocks,
            "Release.prepend": not self.prepend,
            "CommonPrefix": not self.common_prefix,
            "Shape.scheduler_block_size": not self.scheduler_block_size,
            "Shape.retention_interval": self.retention == "none",
            "Group.mamba_mode": not self.caches_unaligned_states,
            "Shape.prefill_parallel": not self.prefill_parallel,
            "Group.eagle": self.eagle == "whole",
        }
        kinds = {f"Group.kind={kind}" for kind in self.kinds_missing}
        return frozenset({name for name, lacking in missing.items() if lacking} | kinds)

    def hides(self, manager: Any) -> frozenset[str]:
        """Fields of a snapshot of this manager that say nothing.

        Where hits end inside blocks, a block that is not full yet is registered for the tokens that it has, and again
        for more; where names cover the token behind a block, it is named anew when that token becomes known. A label
        for each block cannot show either.
        """
        events = set() if self.events_name_groups or len(manager.coordinator.single_type_managers) == 1 else {"events"}
        partial = getattr(manager.coordinator, "enable_partial_hash_hits", False)
        ahead = getattr(manager.block_pool, "num_hash_lookahead_tokens", 0)
        return frozenset(events | (_IDENTITIES if partial or ahead else set()))


_IDENTITIES = {"labels", "earliest", "num_identities", "registered", "events"}
_FIRST = Release(
    since="0.19",
    token_limit="",
    scheduler_block_size=False,
    eagle="whole",
    retention="none",
    gate="method",
    reserved_blocks=False,
    prepend=False,
    prompt_aware_skipping=False,
    in_flight=False,
    boundary=False,
    copies=False,
    records_lookups=False,
    external_after_whole_blocks=False,
    offers_boundary_states=False,
    common_prefix=True,
    caches_unaligned_states=True,
    prefill_parallel=True,
    events_name_groups=False,
    kinds_missing=frozenset({"tq", "sliding_mla"}),
)
_CHANGES: tuple[dict[str, object], ...] = (
    {
        "since": "0.20",
        "token_limit": "max_num_batched_tokens",
        "eagle": "groups",
        "events_name_groups": True,
        "kinds_missing": frozenset(),
    },
    {"since": "0.21", "gate": "argument"},
    {
        "since": "0.23",
        "scheduler_block_size": True,
        "retention": "environment",
        "reserved_blocks": True,
        "prepend": True,
    },
    {"since": "0.24", "prepend": False},
    {"since": "0.25", "prompt_aware_skipping": True},
    {
        "since": "0.26",
        "token_limit": "max_in_flight_tokens",
        "in_flight": True,
        "boundary": True,
        "copies": True,
        "prefill_parallel": False,
    },
    {"since": "0.27", "records_lookups": True, "external_after_whole_blocks": True},
    {"since": "0.28", "kinds_missing": frozenset({"tq"})},
    {"since": "0.29", "retention": "configuration", "offers_boundary_states": True},
    {"since": "0.32", "common_prefix": False},
    {"since": "0.33", "eagle": "lookahead", "caches_unaligned_states": False},
)


def _table() -> Iterator[Release]:
    release = _FIRST
    yield release
    for change in _CHANGES:
        release = replace(release, **change)  # type: ignore[arg-type]  # names and types are those of the fields
        yield release


RELEASES: tuple[Release, ...] = tuple(_table())
"""Oldest first."""
KNOWN = (
    "0.19.1",
    "0.20.2",
    "0.21.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.1",
    "0.26.0",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)
"""The latest patch of each minor release that is covered."""
REFERENCE = "0.23.0"
"""The release that the model describes."""


def release_of(version: str) -> Release:
    """How this version is called: as its newest record says. ValueError for what is older than all records."""
    wanted = _minor(version)
    fitting = [release for release in RELEASES if _minor(release.since) <= wanted]
    if not fitting:
        raise ValueError(f"vLLM {version} is older than {RELEASES[0].since}, the oldest release that can be driven")
    return fitting[-1]


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def page() -> str:
    """The table as Markdown: what each release changed, and what it has no equivalent of."""
    lines = ["| since | what changed | not there |", "| --- | --- | --- |"]
    before: Release | None = None
    for release in RELEASES:
        changed = [
            f"`{field.name}`: {_said(getattr(release, field.name))}"
            for field in fields(Release)
            if field.name != "since" and (before is None or getattr(release, field.name) != getattr(before, field.name))
        ]
        missing = ", ".join(f"`{name}`" for name in sorted(release.lacks)) or "-"
        lines.append(f"| {release.since} | {'; '.join(changed)} | {missing} |")
        before = release
    return "\n".join(lines) + "\n"


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "none"
    return str(value) or "none"
