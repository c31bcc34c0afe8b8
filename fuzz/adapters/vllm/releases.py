"""How the KV-cache core is called in each release of vLLM: one record per release that changed something.

Everything that a record does not mention is called in every release as in 0.23.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ...findings.offered import OF_TODAY
from ...targets.declarations import KINDS_OF_FEW, SEVERAL_NAMES


@dataclass(frozen=True, kw_only=True)
class Release:
    """How the core is built and called, from one release on. A flag left out says that it lacks this."""

    since: str
    """The first minor version that is called like this."""
    token_limit: str = ""
    """Keyword argument of the manager for the most tokens of a request in one step or in flight; empty for none."""
    scheduler_block_size: bool = False
    """The manager has an argument for the lengths at which hits end; else these are the multiples of the least common
    multiple of the block sizes."""
    eagle: Literal["whole", "groups", "lookahead"] = "whole"
    """How the manager learns of eagle (drafting with hidden states): a flag for the whole model; a flag for the model
    or for single groups; not at all, because a block's hash then covers the token behind it, too."""
    retention: Literal["none", "environment", "configuration", "keyword"] = "none"
    """How the retention interval is set: not at all; an environment variable that is read when the manager is built; a
    field of the KV-cache configuration; a keyword argument of the manager (our core)."""
    gate: Literal["method", "argument"] = "method"
    """The admission gate is a method to call before the allocation, or an argument of the allocation."""
    reserved_blocks: bool = False
    """An allocation can be told to leave some blocks free for other requests."""
    prepend: bool = False
    """Blocks can be put at the front of the free queue."""
    prompt_aware_skipping: bool = False
    """Removing skipped blocks takes the length of the prompt as an argument."""
    in_flight: bool = False
    """Windows move only over tokens of steps whose outcome is known; the scheduler counts the tokens in flight."""
    boundary: bool = False
    """A lookup also returns where a prefix that other requests share ends. The scheduler stores it in the request, so
    that the state at that boundary is kept."""
    copies: bool = False
    """A hit may end inside a block. The manager then asks for a copy of its content in a block of the request's own.
    The scheduler drains these copies at the end of its step, and gives back the two references that each of them
    holds."""
    cuts_hits: bool = False
    """The manager cuts a hit that ends inside a block to whole blocks, for a scheduler that has tokens from outside."""
    records_lookups: bool = False
    """The statistics of a lookup are recorded by the scheduler when the request is admitted, not by the lookup."""
    offers_boundary_states: bool = False
    """In each step the manager offers states at boundaries to a connector, and the scheduler drains the offers."""
    offers_last_state: bool = False
    """The manager offers the state at a prompt's end when its request ends, before it is freed."""
    zeroes_again: bool = False
    """Blocks that a failed load has left unwritten are listed to be zeroed; of a table the ids of what is computed can
    be read, and how many tokens of a request are cached."""
    watermark: bool = False
    """Some blocks stay free when a request is admitted while others are scheduled."""
    mixed_prompts: bool = False
    """A prompt may have tokens and embeddings, and says of each position which of them counts."""
    common_prefix: bool
    """Blocks common to all running requests are counted; else the answer is always 0."""
    caches_unaligned_states: bool
    """States of Mamba layers can be cached in other modes than `align`."""
    prefill_parallel: bool
    """Blocks are also spread over the ranks of prefill context parallelism."""
    events_name_groups: bool = False
    """An event says which group it belongs to."""
    loses: frozenset[str]
    """What it is known to do wrong (`targets.base.losing`)."""
    kinds_missing: frozenset[str] = frozenset()
    """Kinds of groups for which there is no spec."""
    offers: frozenset[str] = frozenset({"Arrive.missing"})
    """What it has that few cores have (`targets.base.offering`): a load that fails is the scheduler's affair, and all
    that the core is asked is to register less. Our core has more."""

    @property
    def lacks(self) -> frozenset[str]:
        """Operations, and fields of operations, shapes and groups, that have no equivalent. `Group.kind=tq` stands for
        groups of this kind, `Group.mamba_mode` for caching of Mamba states in other modes than `align`."""
        missing = {
            "Allocate.reserved": not self.reserved_blocks,
            "Release.prepend": not self.prepend,
            "CommonPrefix": not self.common_prefix,
            "Shape.scheduler_block_size": not self.scheduler_block_size,
            "Shape.retention_interval": self.retention == "none",
            "Group.mamba_mode": not self.caches_unaligned_states,
            "Shape.prefill_parallel": not self.prefill_parallel,
            "Group.eagle": self.eagle == "whole",
            "mixed_prompts": not self.mixed_prompts,
        }
        kinds = {f"Group.kind={kind}" for kind in self.kinds_missing}
        return frozenset({name for name, lacking in missing.items() if lacking} | kinds)

    def hides(self, manager: Any) -> frozenset[str]:
        """Fields of a snapshot that cannot be filled in for this manager.

        A snapshot has one label per block. That is not enough where hits end inside blocks (a block that is not full is
        registered for the tokens that it has, and again for more) nor where a hash covers the token behind the block
        (the block gets a new hash when that token becomes known).
        """
        events = set() if self.events_name_groups or len(manager.coordinator.single_type_managers) == 1 else {"events"}
        partial = getattr(manager.coordinator, "enable_partial_hash_hits", False)
        ahead = getattr(manager.block_pool, "num_hash_lookahead_tokens", 0)
        return frozenset(events | ({SEVERAL_NAMES} if partial or ahead else set()))

    def loses_with(self, manager: Any) -> frozenset[str]:
        """What this release is known to do wrong with this manager: one with a connector keeps the old hashes, which
        do not cover the token behind a block, and with Eagle gives up the block behind a hit."""
        old = self.eagle == "lookahead" and not getattr(manager.block_pool, "num_hash_lookahead_tokens", 0)
        return self.loses | (_LOSES_WITH_EAGLE if old else frozenset())


_LOSES = frozenset(
    {
        *("computed-taken-back", "skipped-on-optimistic-count", "chunk-astride-block", "chunked-refuses"),
        *("window-of-one", "gate-behind-hit", "gate-lookahead", "mamba-gate", "chunked-cap", "states-by-scheduler"),
    }
)
"""What every release is known to do wrong."""
_LOSES_TODAY = frozenset(
    {
        *("windows-left-behind", "states-ahead-of-attention", "reported-as-whole", "connector-unreported"),
        *("mamba-negative-demand", "mamba-external-state"),
    }
)
"""What is wrong of lookups for connectors, of tokens from outside and of full reports."""
_LOSES_WITH_EAGLE = frozenset({"eagle-cut-twice", "eagle-asked-in-turn", "eagle-last-block"})
"""The same of a search that gives up the block behind a hit."""
_FIRST = Release(
    since="0.19",
    loses=_LOSES | _LOSES_WITH_EAGLE | {"mamba-states-pile-up"},
    common_prefix=True,
    caches_unaligned_states=True,
    prefill_parallel=True,
    kinds_missing=frozenset({"tq", "sliding_mla"}),
)
_OFFERS_INSIDE = frozenset(
    {"Allocate.alone", "Arrive.missing", "Submit.reports_hits", "Shape.watermark", "hits_inside_blocks"}
)
"""What has been offered since hits end inside blocks."""
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
        "mixed_prompts": True,
        "loses": _LOSES
        | _LOSES_WITH_EAGLE
        | {"boundary-without-eagle", "window-kept-for-scheduler", "mamba-states-pile-up"},
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
        "zeroes_again": True,
        "watermark": True,
        "offers": _OFFERS_INSIDE,
    },
    {"since": "0.27", "records_lookups": True, "cuts_hits": True},
    {"since": "0.28", "kinds_missing": frozenset({"tq"})},
    {"since": "0.29", "retention": "configuration", "offers_boundary_states": True},
    {"since": "0.30", "offers_last_state": True},
    {"since": "0.32", "common_prefix": False},
    {
        "since": "0.33",
        "eagle": "lookahead",
        "offers": OF_TODAY | KINDS_OF_FEW | {"Arrive.missing"},
        "caches_unaligned_states": False,
        "loses": _LOSES | {"window-kept-for-scheduler"} | _LOSES_TODAY,
    },
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
"""The last patch release of each minor version that is supported."""
REFERENCE = "0.23.0"
"""The release that the model describes exactly, apart from known deviations."""
BETWEEN = ("0.26.0", "0.29.0", "0.31.0")
"""Releases between it and 0.33.0 that it describes as well (`deviations_between`)."""


def release_of(version: str) -> Release:
    """The record for this version: the last one that is not newer. ValueError if the version is older than all
    records."""
    wanted = minor(version)
    fitting = [release for release in RELEASES if minor(release.since) <= wanted]
    if not fitting:
        raise ValueError(f"vLLM {version} is older than {RELEASES[0].since}, the oldest release that can be driven")
    return fitting[-1]


def minor(version: str) -> tuple[int, ...]:
    """The numbers of its minor version, to compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def page() -> str:
    """The records as a Markdown table: what each release changed, and what it lacks."""
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
