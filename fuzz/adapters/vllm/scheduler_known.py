"""Which finding a shrunk story shows, if a known one: ids of docs/evidence/findings/findings.toml, names of losses that
releases declare (`targets.declarations.LOSES`), and upstream reports.

A story is shrunk before it is named, so what is still in it is needed for the finding: an adapter in it is one without
which nothing is found. A name is given only where judge, text and story all fit; what fits none is new.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .scheduler_story import Story

READS = ("shadow", "contract")
"""Judges of what a request reads."""


class Known(NamedTuple):
    """A written-up finding, and how to tell it."""

    id: str
    judges: tuple[str, ...]
    text: str
    """A pattern that the rule and what was found, joined by a colon, contain."""
    fits: Callable[[Story], bool]
    fixed: str = ""
    """The first release that no longer has it; empty if the newest one has it."""


def _has(story: Story, *kinds: str) -> bool:
    return any(group.kind in kinds for group in story.setup.shape.groups)


def _overlap(story: Story) -> bool:
    """True if two items of one request are on the same token."""
    return any(
        one.offset < other.offset + other.length and other.offset < one.offset + one.length
        for job in story.jobs
        for number, one in enumerate(job.submit.items)
        for other in job.submit.items[number + 1 :]
    )


def _versions(story: Story, in_place: bool) -> bool:
    """True if two versions of an adapter occur, in one place or in several."""
    jobs = [job for job in story.jobs if job.submit.adapter is not None]
    return len({job.adapter_version for job in jobs}) > 1 and any(job.adapter_in_place for job in jobs) == in_place


def _many_items(story: Story) -> bool:
    return any(len(job.submit.items) > 1 for job in story.jobs) and not _overlap(story)


def _astride(story: Story) -> bool:
    return any(group.kind == "chunked" and group.chunk % group.block_size for group in story.setup.shape.groups)


def _loads(story: Story) -> bool:
    return bool(story.setup.connector)


def _whole_prompt(story: Story) -> bool:
    """True if a whole prompt is loaded while its request waits; its last token is then taken back."""
    whole = any(job.loads_later and job.external >= len(job.submit.prompt) for job in story.jobs)
    return whole and _loads(story) and _has(story, "sliding", "chunked")


def _salt_named_like_adapter(story: Story) -> bool:
    adapters = {job.submit.adapter for job in story.jobs} - {None}
    return bool(adapters & {job.submit.salt for job in story.jobs})


def _cut_windows(story: Story) -> bool:
    return story.setup.asynchronous and story.setup.drafts > 0 and _has(story, "sliding", "chunked")


KNOWN: Sequence[Known] = (
    Known("overlapping-items", READS, "", _overlap),
    Known("adapter-changed-in-place", READS, "", lambda story: _versions(story, in_place=True)),
    Known("adapter-loaded-anew", READS, "", lambda story: _versions(story, in_place=False), "0.31"),
    Known("untagged-extra-keys", READS, "", _salt_named_like_adapter, "0.31"),
    Known("items-lost-on-restart", READS, "", _many_items, "0.31"),
    Known("chunk-astride-block", READS, "", _astride),
    Known("state-from-outside", ("exception",), "ValueError.*Cannot get", lambda s: _loads(s) and _has(s, "mamba")),
    Known(
        "state-demand-shrinks",
        ("exception",),
        "AssertionError",
        lambda s: s.setup.drafts > 0 and not _loads(s) and _has(s, "mamba"),
        "0.23",
    ),
    Known("vllm-project/vllm#45407", ("exception",), "External KV connector is not verified yet", _loads, "0.23"),
    Known(
        "loads-block-each-other",
        ("liveness",),
        "^starved",
        lambda s: _loads(s) and _has(s, "sliding", "chunked") and len(s.jobs) > 1,
    ),
    Known(
        "admission-deadlock",
        ("liveness",),
        "^starved",
        lambda s: not _loads(s) and _has(s, "sliding", "chunked"),
        "0.20",
    ),
    Known(
        "hit-taken-for-external",
        READS,
        "",
        lambda s: _loads(s) and len(s.setup.shape.groups) > 1,
        "0.24",
    ),
    Known("hit-not-cut", ("contract",), "^S7.* entries of ", lambda s: len(s.setup.shape.groups) > 2, "0.29"),
    Known(
        "hit-not-cut",
        (*READS, "exception", "liveness"),
        "",
        lambda s: _loads(s) and len(s.setup.shape.groups) > 2,
        "0.29",
    ),
    Known("prompt-loaded-whole", READS, "null|S6|S13|S15", _whole_prompt),
    Known("window-cut-too-early", READS, "S6|S13|S15|position", _cut_windows, "0.26"),
    Known(
        "mamba-eagle-margin",
        READS,
        "S7|position|state",
        lambda s: s.setup.shape.eagle and not _loads(s) and _has(s, "mamba"),
        "0.26",
    ),
    Known(
        "window-missing-in-hit",
        READS,
        "S7|null block",
        lambda s: s.setup.shape.eagle and _has(s, "sliding") and len({g.block_size for g in s.setup.shape.groups}) > 1,
        "0.20",
    ),
    Known(
        "short-prompt-loses-hit",
        ("contract",),
        "^S14",
        lambda s: s.setup.shape.eagle and _has(s, "sliding"),
        "0.33",
    ),
)
"""In the order in which they are tried."""


def known_as(release: str, judge: str, rule: str, what: str, story: Story) -> str:
    """The id of the finding on this release (a version), or an upstream report without one; empty if it is new."""
    said = f"{rule}: {what}"
    for known in KNOWN:
        there = not known.fixed or _minor(release) < _minor(known.fixed)
        if there and judge in known.judges and re.search(known.text, said) and known.fits(story):
            return known.id
    return ""


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
