"""Small cases that show whether a release's own scheduler can run into a violation, and what a user would see.

In the interpreter of a release, `python -m blockproof.fuzz.adapters.vllm.engine.cases CASE...` runs the cases (all of
them if none is named) and prints a line of JSON for each: whether the violation occurred, and what was observed. If
the release cannot build the engine of a case, its line says so. Every engine here passes the release's own start-up
check: its pool holds a request of the greatest length."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from .....model.ops import Group, Item
from ....simulation.protocol import ClientRequest
from .loads import LATER, NOW
from .played import Observed, PlayedRun
from .scheduler_config import Setup, module, shape_of

TEXT = tuple(range(1, 4097))
"""Tokens of a text, all different."""
IMAGE = 9000
"""The placeholder token of every multimodal item."""


@dataclass(frozen=True)
class CaseVerdict:
    """The result of a case: whether the violation occurred, what happened in one sentence, and all observations."""

    shown: bool
    """True if the violation occurred."""
    what: str
    observed: Observed


def _text(length: int, first: int = 0) -> tuple[int, ...]:
    return TEXT[first : first + length]


def _corrupted(observed: Observed) -> CaseVerdict:
    return CaseVerdict(bool(observed.corruption), observed.corruption[0] if observed.corruption else "", observed)


def _crashed(observed: Observed, exception: str = "") -> CaseVerdict:
    """The violation is this exception (how it begins, type first; any if empty). RuntimeError for another one: an
    engine that dies of something else says nothing about the case."""
    if not observed.error.startswith(exception) and observed.error:
        raise RuntimeError(f"the engine ends with another exception: {observed.error}")
    return CaseVerdict(bool(observed.error), observed.error, observed)


def _starved(observed: Observed) -> CaseVerdict:
    waiting = ", ".join(observed.starved)
    return CaseVerdict(bool(observed.starved), f"never scheduled: {waiting}" if waiting else "", observed)


def _one_full(num_blocks: int = 64, block_size: int = 16, max_model_len: int = 256) -> Setup:
    return Setup(shape_of((Group("full", block_size),), num_blocks, max_model_len, 128))


def _scan(build: Callable[[int], Observed], judge: Callable[[Observed], CaseVerdict], values: range) -> CaseVerdict:
    """The verdict at the first of these values (blocks in the pool, or held) at which the violation occurs; else the
    last verdict."""
    verdict = CaseVerdict(False, "", Observed())
    for value in values:
        try:
            verdict = judge(build(value))
        except NotImplementedError:  # the start-up check refuses the pool
            continue
        if verdict.shown:
            return replace(verdict, what=f"{verdict.what} (at {value})")
    return verdict


# Identities of blocks.


def adapter_named_like_salt() -> CaseVerdict:
    """A request without an adapter, with the adapter's name as its salt, gets blocks computed with that adapter."""
    run = PlayedRun(_one_full())
    run.add(ClientRequest("with adapter", _text(40), 2, adapter="tenant"))
    run.run()
    run.add(ClientRequest("salted", _text(40), 2, salt="tenant"))
    return _corrupted(run.run())


def adapter_loaded_anew(in_place: bool = False) -> CaseVerdict:
    """An adapter is unloaded and another one loaded under the same name from another path: the old blocks are hit."""
    run = PlayedRun(replace(_one_full(), adapters_in_place=in_place))
    for name, version in (("before", 0), ("after", 1)):
        run.add(ClientRequest(name, _text(40), 2, adapter="tenant", adapter_version=version))
        run.run()
    return _corrupted(run.observed)


def adapter_changed_in_place() -> CaseVerdict:
    """An adapter is trained further in the same path and loaded again: the old blocks are hit."""
    return adapter_loaded_anew(in_place=True)


def overlapping_items() -> CaseVerdict:
    """A video and its sound are two items on the same tokens; the same video with another sound hits the old blocks."""
    run = PlayedRun(_one_full())
    prompt = (*_text(4), *[IMAGE] * 60, *_text(8, 100))
    for name, sound in (("first", "sound 1"), ("second", "sound 2")):
        items = (Item("video", 4, 60), Item(sound, 4, 60))
        run.add(ClientRequest(name, prompt, 2, items=items))
        run.run()
    return _corrupted(run.observed)


def items_lost_on_restart() -> CaseVerdict:
    """Two conversations differ in one of two images in the prompt's last block; one is preempted and starts again.

    Its first token belongs to that block, too, and depends on the image: some image gives the same one."""
    prompt = (*_text(18), *[IMAGE] * 4, *_text(2, 50), *[IMAGE] * 4, *_text(3, 60))

    def build(image: int) -> Observed:
        run = PlayedRun(_one_full(num_blocks=10, max_model_len=64))
        run.add(ClientRequest("other", prompt, 30, items=(Item("image 1", 18, 4), Item("shared", 24, 4))))
        run.add(ClientRequest("long", _text(20, 200), 40))
        run.step()
        run.add(ClientRequest("preempted", prompt, 30, items=(Item(f"image {image}", 18, 4), Item("shared", 24, 4))))
        return run.run()

    return _scan(build, _corrupted, range(2, 20))


# Hits that are too long.


def chunk_astride_block() -> CaseVerdict:
    """The chunk is no multiple of the block size: the hit ends before the chunk that its search assumed."""
    groups = (Group("chunked", 16, chunk=24),)
    run = PlayedRun(Setup(shape_of(groups, 32, 128, 128)))
    run.add(ClientRequest("only", _text(31), 4))
    return _corrupted(run.run())


def state_beyond_keys() -> CaseVerdict:
    """Eagle and a hybrid with Mamba: the next turn of a conversation gets a hit longer than what full attention
    holds."""
    groups = (Group("full", 16), Group("mamba", 16, mamba_mode="align", speculative_blocks=2))
    run = PlayedRun(Setup(shape_of(groups, 64, 256, 256, eagle=True), drafts=2))
    run.add(ClientRequest("turn 1", _text(40), 26), 0)
    run.run()
    history = run.tokens_of("turn 1")
    run.add(ClientRequest("turn 2", (*history, *_text(30, 300)), 4), 0)
    return _corrupted(run.run())


def _decode_under_pressure(num_blocks: int, drafts: int) -> Observed:
    """Twelve requests fill the pool and decode asynchronously; nearly all of their drafts are wrong."""
    groups = (Group("full", 4), Group("sliding", 4, window=7))
    shape = shape_of(groups, num_blocks, 64, 16, eagle=bool(drafts))
    run = PlayedRun(Setup(shape, drafts=drafts, asynchronous=True))
    for index in range(12):
        run.add(ClientRequest(f"r{index}", _text(5 + 3 * index % 20, 40 * index), 24), 0, 1, 0)
    return run.run()


def window_cut_too_early() -> CaseVerdict:
    """Asynchronous, with drafts: blocks behind the window are freed for tokens that are rejected afterwards, and
    another request takes them."""
    return _scan(lambda blocks: _decode_under_pressure(blocks, 3), _corrupted, range(30, 46, 2))


def window_cut_without_drafts() -> CaseVerdict:
    """The same without drafts (negative control): nothing is rejected, so no freed block is read again."""
    return _scan(lambda blocks: _decode_under_pressure(blocks, 0), _corrupted, range(30, 46, 2))


# Admission.


def window_reserved_as_full() -> CaseVerdict:
    """A prompt that passes the start-up check waits for ever, because the gate counts its window groups in full."""
    groups = (Group("full", 16), Group("sliding", 16, window=64))
    run = PlayedRun(Setup(shape_of(groups, 80, 1024, 64)))
    run.add(ClientRequest("long", _text(1000), 4))
    return _starved(run.run())


def hit_too_large_for_the_pool() -> CaseVerdict:
    """A request that just fits, of which a part is cached: what is cached is held beside its copies, and it starts no
    more, though it ends if nothing is cached."""
    groups = (Group("full", 16), Group("mamba", 32, mamba_mode="align"))

    def build(num_blocks: int, before: int) -> Observed:
        run = PlayedRun(Setup(shape_of(groups, num_blocks, 64, 128)))
        if before:
            run.add(ClientRequest("begin", _text(before), 1))
            run.run()
        run.add(ClientRequest("whole", _text(63), 1))
        return run.run(200)

    def judged(num_blocks: int) -> Observed:
        observed = build(num_blocks, 20)
        if build(num_blocks, 0).starved:
            observed.starved = []  # one that starves without a hit is another violation
        return observed

    return _scan(judged, _starved, range(6, 12))


# A connector loads tokens from outside.


def state_from_outside() -> CaseVerdict:
    """Running states and a connector: the block for the loaded state is not counted, and the engine dies taking it."""
    groups = (Group("full", 16), Group("mamba", 16, mamba_mode="align"))

    def build(held: int) -> Observed:
        run = PlayedRun(Setup(shape_of(groups, 40, 512, 512), connector=NOW))
        run.add(ClientRequest("holder", _text(16 * held - 1), 200))
        run.step()
        run.add(ClientRequest("loaded", _text(100, 1000), 4, external=96))
        return run.run(60)

    return _scan(build, lambda observed: _crashed(observed, "ValueError: Cannot get"), range(20, 32))


def prompt_loaded_whole() -> CaseVerdict:
    """A window and a connector that has a whole prompt: the last token is computed again, without the first position of
    its window, which is the last one of a block."""
    groups = (Group("full", 16), Group("sliding", 16, window=64))
    run = PlayedRun(Setup(shape_of(groups, 64, 256, 128), connector=LATER))
    run.add(ClientRequest("loaded", _text(127), 4, external=127))
    return _corrupted(run.run(60))


def hit_taken_for_external() -> CaseVerdict:
    """Two groups and a connector: one group takes blocks for external tokens that are part of the other's hit, which is
    not held yet."""
    groups = (Group("full", 32), Group("sliding", 16, window=48))

    def build(num_blocks: int) -> Observed:
        run = PlayedRun(Setup(shape_of(groups, num_blocks, 256, 128), connector=LATER))
        for job, steps in (
            (ClientRequest("before", _text(64, 1000), 12), 8),
            (ClientRequest("long", _text(191), 16), 1),
            (ClientRequest("next", _text(188), 26), 6),
        ):
            run.add(job)
            for _ in range(steps):
                run.step()
        run.add(ClientRequest("loaded", (*_text(64), *_text(52, 600)), 4, external=96))
        return run.run(60)

    return _scan(build, _corrupted, range(23, 64))


def hit_not_cut() -> CaseVerdict:
    """Two different groups of full attention and a window: the second group keeps a hit that the window has
    shortened."""
    groups = (Group("full", 16), Group("full", 16, num_heads=2), Group("sliding", 16, window=32))

    def build(held: int) -> Observed:
        run = PlayedRun(Setup(shape_of(groups, 70, 256, 64), connector=LATER))
        run.add(ClientRequest("long", _text(180), 60))
        for _ in range(5):
            run.step()
        run.add(ClientRequest("holder", _text(16 * held - 1, 1000), 30))
        for _ in range(4):
            run.step()
        run.add(ClientRequest("loaded", (*_text(66), *_text(20, 600)), 4, external=16))
        run.run(60)
        for index in range(4):
            run.add(ClientRequest(f"after {index}", _text(120, 700 + 200 * index), 8))
        return run.run(120)

    def judge(observed: Observed) -> CaseVerdict:
        verdict = _corrupted(observed) if observed.corruption else _crashed(observed)
        if verdict.shown or not observed.missing_blocks:
            return verdict
        return CaseVerdict(True, f"{-observed.missing_blocks} more blocks count as free than there are", observed)

    return _scan(build, judge, range(1, 14))


def loads_block_each_other() -> CaseVerdict:
    """A window and a connector: two requests are admitted to load, and then each waits for the blocks of the other,
    though each of them ends if it is alone."""
    groups = (Group("full", 16), Group("sliding", 16, window=64))
    both = (("one", 0, 400, 256), ("two", 1000, 500, 320))

    def build(num_blocks: int, jobs: Sequence[tuple[str, int, int, int]] = both) -> Observed:
        run = PlayedRun(Setup(shape_of(groups, num_blocks, 512, 128), connector=LATER))
        for name, first, length, external in jobs:
            run.add(ClientRequest(name, _text(length, first), 4, external=external))
        return run.run(200)

    def judged(num_blocks: int) -> Observed:
        observed = build(num_blocks)
        if len(observed.starved) < len(both) or any(build(num_blocks, [job]).starved for job in both):
            observed.starved = []  # one that starves alone is another violation
        return observed

    return _scan(judged, _starved, range(48, 80))


# Hits that are lost.


def _replayed(setup: Setup, prompt: Sequence[int]) -> Observed:
    run = PlayedRun(setup)
    for name in ("first", "replay"):
        run.add(ClientRequest(name, tuple(prompt), 4), 0)
        run.run()
    return run.observed


def _replay_loses(setup: Setup, prompt: Sequence[int]) -> CaseVerdict:
    """The violation occurs if a replay with eagle loses more than the one alignment that it has to give up."""
    without = replace(setup, drafts=0, shape=replace(setup.shape, eagle=False))
    observed, kept = _replayed(setup, prompt), _replayed(without, prompt).hits["replay"]
    hit = observed.hits["replay"]
    what = f"a replay hits {hit} tokens with eagle, {kept} without"
    return CaseVerdict(hit + setup.shape.scheduler_block_size < kept, what, observed)


def replay_never_hits() -> CaseVerdict:
    """Retention interval 0 (kept for replays only), a window and eagle: no replay ever hits."""
    groups = (Group("full", 16), Group("sliding", 16, window=32))
    shape = shape_of(groups, 128, 1024, 256, eagle=True)
    return _replay_loses(Setup(shape, drafts=2, retention=0), _text(300))


def replay_never_hits_by_default() -> CaseVerdict:
    """The same with the release's own retention interval."""
    groups = (Group("full", 16), Group("sliding", 16, window=32))
    return _replay_loses(Setup(shape_of(groups, 128, 1024, 256, eagle=True), drafts=2), _text(300))


def short_prompt_loses_hit() -> CaseVerdict:
    """Eagle, a window in smaller blocks than full attention, a prompt shorter than the window: its hit is lost."""
    groups = (Group("full", 64), Group("sliding", 16, window=512))
    return _replay_loses(Setup(shape_of(groups, 256, 1024, 256, eagle=True), drafts=2), _text(200))


CASES: Mapping[str, Callable[[], CaseVerdict]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        adapter_named_like_salt,
        adapter_loaded_anew,
        adapter_changed_in_place,
        overlapping_items,
        items_lost_on_restart,
        chunk_astride_block,
        state_beyond_keys,
        window_cut_too_early,
        window_cut_without_drafts,
        prompt_loaded_whole,
        hit_taken_for_external,
        hit_not_cut,
        state_from_outside,
        window_reserved_as_full,
        hit_too_large_for_the_pool,
        loads_block_each_other,
        replay_never_hits,
        replay_never_hits_by_default,
        short_prompt_loses_hit,
    )
}
"""Cases by name."""


def report(name: str) -> dict[str, object]:
    """Run a case. If the release cannot build the engine, `shown` is None and `what` says why."""
    line: dict[str, object] = {"case": name, "release": module("version").__version__}
    try:
        verdict = CASES[name]()
    except Exception as error:
        return line | {"shown": None, "what": f"not built: {type(error).__name__}: {str(error)[:200]}"}
    return line | {"shown": verdict.shown, "what": verdict.what, "observed": asdict(verdict.observed)}


def main(names: Sequence[str]) -> int:
    """Run these cases, or all of them. Returns 0, or 2 for an unknown name."""
    if unknown := [name for name in names if name not in CASES]:
        print(f"no case is called {unknown[0]!r}; there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    for name in names or CASES:
        print(json.dumps(report(name)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
