"""Which finding a shrunk story shows, if a known one: ids of docs/evidence/findings/findings.toml, names of losses that
releases declare (`targets.declarations.LOSES`), and upstream reports.

A name is given by experiment: the same story runs again with the known cause, and nothing else, taken away. Only if
the finding is gone then, it was that cause. What is taken away is either what sets it off in the story (`without`) or
the mistake of the release itself (`remedy`). Which causes are tried at all follows from the judge, the property or
exception, the release, and from what is in the story: it is shrunk before it is named, so what is left is needed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ....model.attention import rules_for
from ....model.ops import Item
from ...workload.bounds import keeps_states
from . import scheduler_remedies as remedies
from .scheduler_device import DeviceJob
from .scheduler_run import SchedulerRun
from .scheduler_story import Story, with_job

READS = ("shadow", "contract")
"""Judges of what a request reads."""


def _as_it_is(story: Story) -> Story:
    return story


class KnownCause(NamedTuple):
    """A written-up finding, when it may be the cause, and how its cause is taken away."""

    id: str
    judges: tuple[str, ...]
    rule: str
    """A pattern that the property, or the exception, must contain; empty for any."""
    fits: Callable[[Story], bool]
    fixed: str = ""
    """The first release that no longer has it; empty if the newest one has it."""
    without: Callable[[Story], Story] = _as_it_is
    """The story without what sets it off."""
    remedy: Callable[[SchedulerRun], None] | None = None
    """What the release would have to do otherwise."""


class Experiment(NamedTuple):
    """A run that is to be silent if a finding has a known cause."""

    id: str
    story: Story
    remedy: Callable[[SchedulerRun], None] | None


def _has_states(story: Story) -> bool:
    return keeps_states(story.setup.shape)


def _has_windows(story: Story) -> bool:
    return any(rule.windowed for rule in rules_for(story.setup.shape))


def _gives_up(story: Story) -> bool:
    """True if blocks are given up behind a window or a chunk."""
    return any(rule.cap() is not None for rule in rules_for(story.setup.shape))


def _apart(one: Item, other: Item) -> bool:
    return one.offset >= other.offset + other.length or other.offset >= one.offset + one.length


def _overlap(story: Story) -> bool:
    """True if two items of one request are on the same token."""
    return any(
        not _apart(one, other)
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
    return any(group.chunk % group.block_size for group in story.setup.shape.groups)


def _loads(story: Story) -> bool:
    return bool(story.setup.connector)


def _whole_prompt(story: Story) -> bool:
    """True if a whole prompt is loaded while its request waits; its last token is then taken back."""
    whole = any(job.loads_later and job.external >= len(job.submit.prompt) for job in story.jobs)
    return whole and _loads(story) and _gives_up(story)


def _salt_named_like_adapter(story: Story) -> bool:
    adapters = {job.submit.adapter for job in story.jobs} - {None}
    return bool(adapters & {job.submit.salt for job in story.jobs})


def _cut_windows(story: Story) -> bool:
    return story.setup.asynchronous and story.setup.drafts > 0 and _gives_up(story)


def _each(change: Callable[[DeviceJob], dict[str, object]]) -> Callable[[Story], Story]:
    """The story with these fields changed in each request."""

    def changed(story: Story) -> Story:
        events = (e if e.job is None else with_job(e, **change(e.job)) for e in story.events)
        return replace(story, events=tuple(events))

    return changed


def _one_after_the_other(job: DeviceJob) -> dict[str, object]:
    kept = [item for n, item in enumerate(job.submit.items) if all(_apart(item, one) for one in job.submit.items[:n])]
    return {"items": tuple(kept)}


def _name_by_version(job: DeviceJob) -> dict[str, object]:
    adapter = job.submit.adapter
    return {} if adapter is None else {"adapter": f"{adapter}, version {job.adapter_version}"}


def _whole_chunks(story: Story) -> Story:
    shape = story.setup.shape
    groups = tuple(
        replace(g, chunk=max(1, g.chunk // g.block_size) * g.block_size) if g.chunk else g for g in shape.groups
    )
    return replace(story, setup=replace(story.setup, shape=replace(shape, groups=groups)))


def _set_up(**changes: object) -> Callable[[Story], Story]:
    def changed(story: Story) -> Story:
        return replace(story, setup=replace(story.setup, **changes))  # type: ignore[arg-type]  # fields of a setup

    return changed


def _without_eagle(story: Story) -> Story:
    shape = replace(story.setup.shape, eagle=False)
    return replace(story, setup=replace(story.setup, shape=shape, method="ngram"))


KNOWN: Sequence[KnownCause] = (
    KnownCause("overlapping-items", READS, "", _overlap, without=_each(_one_after_the_other)),
    KnownCause(
        "adapter-changed-in-place", READS, "", lambda s: _versions(s, in_place=True), without=_each(_name_by_version)
    ),
    KnownCause(
        *("adapter-loaded-anew", READS, "", lambda s: _versions(s, in_place=False), "0.31"),
        without=_each(_name_by_version),
    ),
    KnownCause(
        *("untagged-extra-keys", READS, "", _salt_named_like_adapter, "0.31"),
        without=_each(lambda job: {"salt": job.submit.salt and f"the salt {job.submit.salt}"}),
    ),
    KnownCause(
        *("items-lost-on-restart", READS, "", _many_items, "0.31"),
        without=_each(lambda job: {"items": job.submit.items[:1]}),
    ),
    KnownCause("chunk-astride-block", READS, "", _astride, without=_whole_chunks),
    KnownCause(
        *("state-from-outside", ("exception",), "^ValueError", lambda s: _loads(s) and _has_states(s)),
        remedy=remedies.count_one_state_more,
    ),
    KnownCause(
        *("state-demand-shrinks", ("exception",), "^AssertionError"),
        *(lambda s: s.setup.drafts > 0 and not _loads(s) and _has_states(s), "0.23"),
        remedy=remedies.count_no_states_below_zero,
    ),
    KnownCause(
        *("vllm-project/vllm#45407", ("exception",), "External KV connector is not verified yet", _loads, "0.23"),
        without=_set_up(connector=""),
    ),
    KnownCause(
        *("loads-block-each-other", ("liveness",), "^starved"),
        lambda s: _loads(s) and _gives_up(s) and len(s.jobs) > 1,
        without=_each(lambda job: {"loads_later": False}),
    ),
    KnownCause(
        *("admission-deadlock", ("liveness",), "^starved"),
        *(lambda s: not _loads(s) and _gives_up(s), "0.20"),
        without=_set_up(max_num_seqs=1),
    ),
    KnownCause(
        *("hit-taken-for-external", READS, "", lambda s: _loads(s) and len(s.setup.shape.groups) > 1, "0.24"),
        remedy=remedies.hold_hits_first,
    ),
    KnownCause(
        *("hit-not-cut", (*READS, "exception", "liveness"), "", lambda s: len(s.setup.shape.groups) > 2, "0.29"),
        remedy=remedies.cut_every_hit,
    ),
    KnownCause(
        *("prompt-loaded-whole", READS, "", _whole_prompt),
        without=_each(lambda job: {"external": min(job.external, len(job.submit.prompt) - 1)}),
    ),
    KnownCause("window-cut-too-early", READS, "", _cut_windows, "0.26", remedy=remedies.never_cut_windows),
    KnownCause(
        *("states-by-scheduler", READS, "", lambda s: _has_states(s)),
        remedy=remedies.register_written_states_only,
    ),
    KnownCause(
        *("mamba-eagle-margin", READS, "", lambda s: s.setup.shape.eagle and _has_states(s), "0.26"),
        remedy=remedies.search_states_without_margin,
    ),
    KnownCause(
        *("window-missing-in-hit", READS, ""),
        lambda s: s.setup.shape.eagle and _has_windows(s) and len({g.block_size for g in s.setup.shape.groups}) > 1,
        *("0.20", _without_eagle),
    ),
    KnownCause(
        *("short-prompt-loses-hit", ("contract",), "^S14"),
        *(lambda s: s.setup.shape.eagle and _has_windows(s), "0.33", _without_eagle),
    ),
)
"""In the order in which they are tried."""


def experiments(release: str, judge: str, rule: str, what: str, story: Story) -> Iterator[Experiment]:
    """Those that say which known cause a finding on this release (a version) has: the first that is silent."""
    said = f"{rule}: {what}"
    for known in KNOWN:
        there = not known.fixed or _minor(release) < _minor(known.fixed)
        if there and judge in known.judges and re.search(known.rule, said) and known.fits(story):
            without = known.without(story)
            if without != story or known.remedy is not None:
                yield Experiment(known.id, without, known.remedy)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
