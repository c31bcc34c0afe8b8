"""The scenarios: together they ask for every operation, on cores of full attention."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from ....model import ops
from ...findings.words import plural
from ...targets.answers import hit_of
from .driving import ScenarioDriver
from .expected import gone, grows_to, hash_blocks, hit, is_tuple, is_value, new_blocks, room_for, unchanged

Script: TypeAlias = Callable[[ScenarioDriver, int], None]
nothing = partial(is_value, None)


def shape_of(block_size: int, num_blocks: int = 9, **more: object) -> ops.Shape:
    """A core of one group of full attention, with everything else as simple as can be."""
    length = 16 * block_size
    plain: dict[str, object] = {
        "groups": (ops.Group("full", block_size),),
        "num_blocks": num_blocks,
        "max_model_len": length,
        "hash_block_size": block_size,
        "scheduler_block_size": block_size,
        "max_num_batched_tokens": length,
    }
    return ops.Shape(**{**plain, **more})  # type: ignore[arg-type]


def prompt(length: int, first: int = 1) -> tuple[int, ...]:
    """A prompt of so many tokens; prompts with different first tokens share nothing."""
    return (first, *(2 + place % 5 for place in range(length - 1)))


def table(driver: ScenarioDriver, request: str) -> list[int]:
    """The blocks of a request, as they are shown now."""
    return list(driver.shown.tables[0].get(request, ()))


def computed(driver: ScenarioDriver, request: str, tokens: tuple[int, ...]) -> None:
    """A request comes, gets room for its prompt without the cache, and its step runs."""
    size = driver.shape.groups[0].block_size
    driver.ask(ops.Submit(request, tokens), "full hash blocks of the prompt", hash_blocks(len(tokens)))
    count = -(-len(tokens) // size)
    why = f"room for {plural(len(tokens), 'token')}: {plural(count, 'block')}"
    tight = driver.shape.num_blocks <= 3
    driver.ask(ops.Allocate(request, len(tokens)), why, new_blocks(request, count), tight=tight)
    driver.ask(ops.Advance(request, (7,)), "computed, and one token sampled", hash_blocks(len(tokens) + 1))


def one_request(driver: ScenarioDriver, size: int) -> None:
    """The whole life of one request, with a preemption in the middle."""
    length = 2 * size + (size + 1) // 2
    if not driver.start("One request", shape_of(size)):
        return
    driver.ask(ops.StepStart(), "a scheduler step begins", nothing("nothing is answered"), unchanged)
    driver.ask(ops.Submit("a", prompt(length)), "full hash blocks of the prompt", hash_blocks(length))
    driver.ask(ops.Lookup("a"), "nothing is cached yet, so no hit", hit(0), unchanged)
    count = -(-length // size)
    driver.ask(ops.Allocate("a", length), f"room for {length} tokens", new_blocks("a", count))
    read = [is_value((tuple(table(driver, "a")),), "the table")] if driver.shows_tables else []
    driver.ask(ops.ReadTable("a"), "its blocks, for each group", *read, unchanged)
    driver.ask(ops.ReadTable("nobody"), "an unknown request has no blocks", is_value(((),), "no blocks"), unchanged)
    driver.ask(ops.Advance("a", (7,)), "the prompt is computed, one token sampled", hash_blocks(length + 1))
    more = -(-(length + 1) // size) - count
    driver.ask(ops.Allocate("a", 1), f"room for one token more: {plural(more, 'new block')}", new_blocks("a", more))
    driver.ask(ops.Advance("a", (7,)), "one more token", hash_blocks(length + 2))
    driver.ask(ops.RemoveSkipped("a"), "full attention reads every token", nothing("nothing is answered"), unchanged)
    driver.ask(ops.Preempt("a"), "it gives its blocks back and starts again", nothing("nothing is answered"), gone("a"))
    if driver.has("Preempt"):
        _again(driver, size, length + 2)
    driver.ask(ops.Free("a"), "its blocks are free again", nothing("nothing is answered"), gone("a"))
    driver.ask(ops.Free("nobody"), "nobody knows it, so nothing happens", nothing("nothing is answered"), unchanged)


def _again(driver: ScenarioDriver, size: int, known: int) -> None:
    """The request that was preempted is computed again, with what is still cached of it."""
    most = (known - 1) // size * size
    looked = driver.ask(ops.Lookup("a"), "what is still cached of it", hit(most, known, at_least=True), unchanged)
    found = hit_of(looked.outcome) if looked is not None else None  # type: ignore[arg-type]
    tokens, blocks = (found[0], found[1][0]) if found and driver.has("Allocate.hit") else (0, [])
    count = -(-known // size) - len(blocks)
    why = f"{plural(known, 'token')}, {tokens} of them hit: {plural(count, 'new block')}"
    driver.ask(ops.Allocate("a", known - tokens, hit=tokens > 0), why, new_blocks("a", count, blocks))
    driver.ask(ops.Advance("a", (7,)), "computed again, one token sampled", hash_blocks(known + 1))


def in_pieces(driver: ScenarioDriver, size: int) -> None:
    """A prompt in two steps. The second has one token, but is no decode step."""
    if not driver.start("A prompt in pieces", shape_of(size, 4)):
        return
    length = 2 * size + 1
    driver.ask(ops.Submit("a", prompt(length)), "3 blocks, all that there are", hash_blocks(length))
    driver.ask(
        ops.Allocate("a", 2 * size), "room for two blocks, or for the whole prompt", room_for("a", 2, 3), tight=True
    )
    driver.ask(ops.Advance("a"), "the first piece is computed, nothing is sampled yet", hash_blocks(length))
    tight = len(table(driver, "a")) < 3
    driver.ask(ops.Allocate("a", 1), "the last token of the prompt", room_for("a", 3, 3), tight=tight)
    driver.ask(ops.Advance("a", (7,)), "the prompt is computed, one token sampled", hash_blocks(length + 1))
    driver.ask(ops.Free("a"), "freed", nothing("nothing is answered"), gone("a"))


def shared_prefix(driver: ScenarioDriver, size: int) -> None:
    """Two requests with one prompt share a block; resetting is refused while it is held."""
    if not driver.start("A shared prefix", shape_of(size)):
        return
    tokens = prompt(2 * size)
    computed(driver, "a", tokens)
    driver.ask(ops.Submit("b", tokens), "the same prompt", hash_blocks(len(tokens)))
    why = "at least one token is left to compute"
    looked = driver.ask(ops.Lookup("b"), why, hit(size, len(tokens), at_least=True), unchanged)
    driver.report.shares_running = looked is not None and looked.outcome != ops.Done((0, ((),)))
    shared = table(driver, "a")[:1]
    if driver.has("Allocate.hit") and driver.report.shares_running:
        driver.ask(ops.Allocate("b", size, hit=True), "its table begins with the hit", new_blocks("b", 1, shared))
        driver.ask(ops.Advance("b", (7,)), "computed, one token sampled", hash_blocks(len(tokens) + 1))
        driver.ask(
            ops.CommonPrefix("a"), "leading blocks that all share", is_value((1,), "one block for the group"), unchanged
        )
    driver.ask(
        ops.Submit("c", (*tokens, 9), skip_lookup=True), "it must not use the cache", hash_blocks(len(tokens) + 1)
    )
    if driver.has("Submit.skip_lookup"):
        driver.ask(ops.Lookup("c"), "skip_lookup is set, so no hit", hit(0), unchanged)
    for field, told in (("salt", "x"), ("adapter", "y")):
        if driver.has(f"Submit.{field}"):
            driver.ask(ops.Submit(field, tokens, **{field: told}), f"the same tokens with another {field}")  # type: ignore[arg-type]
            driver.ask(ops.Lookup(field), f"another {field} is another content, so no hit", hit(0), unchanged)
    driver.ask(
        ops.Reset(), "blocks are in use", is_value(False, "nothing is forgotten while a block is in use"), unchanged
    )
    driver.ask(ops.Free("a"), "what is shared stays held by b", nothing("nothing is answered"), gone("a"))
    driver.ask(ops.Free("b"), "now all is free", nothing("nothing is answered"), gone("b"))
    driver.ask(ops.Submit("d", (*tokens, 9)), "the same prefix again", hash_blocks(len(tokens) + 1))
    driver.ask(
        ops.Lookup("d"),
        "free blocks keep their content until they are reused",
        hit(2 * size, len(tokens) + 1, at_least=driver.forgets),
        unchanged,
    )
    driver.ask(ops.Reset(), "nothing is in use", is_value(True, "everything is forgotten"))
    if driver.has("Reset"):
        driver.ask(ops.Lookup("d"), "everything was forgotten, so no hit", hit(0), unchanged)


def full_pool(driver: ScenarioDriver, size: int) -> None:
    """No room: refused without a change; then room again, in blocks that were cached."""
    if not driver.start("A full pool", shape_of(size, 3)):
        return
    computed(driver, "a", prompt(2 * size - 1) if size > 1 else prompt(1))
    rest = len(driver.shown.tables[0].get("a", ()))
    length = 2 * size
    driver.ask(ops.Submit("b", prompt(length, first=8)), "another prompt", hash_blocks(length))
    why = f"{plural(2 - rest, 'block')} free, 2 are needed"
    driver.ask(ops.Allocate("b", length), why, unchanged, outcome=ops.Refused)
    driver.ask(ops.Submit("c", prompt(2 * size)), "begins as a does", hash_blocks(2 * size))
    found = hit(size, 2 * size, at_least=not driver.report.shares_running)
    driver.ask(ops.Lookup("c"), "a lookup does not ask whether there is room", found, unchanged)
    driver.ask(ops.Preempt("a"), "it makes room", nothing("nothing is answered"), gone("a"))
    if not driver.has("Preempt"):
        driver.ask(ops.Free("a"), "it makes room", nothing("nothing is answered"), gone("a"))
    driver.ask(ops.Allocate("b", length), "both blocks are free, cached or not", new_blocks("b", 2), tight=True)
    driver.ask(ops.Advance("b", (7,)), "computed, one token sampled", hash_blocks(length + 1))
    driver.ask(ops.Lookup("c"), "the blocks hold something else now, so no hit", hit(0), unchanged)


def more_room(driver: ScenarioDriver, size: int) -> None:
    """What an allocation may ask for besides: lookahead, a gate, reserved blocks."""
    if not driver.start("Gate, reserve and lookahead", shape_of(size, 5)):
        return
    driver.ask(ops.Submit("a", prompt(5 * size)), "longer than the pool", hash_blocks(5 * size))
    if driver.has("Allocate.gate"):
        why = "the gate wants room for the whole prompt, 5 blocks of 4"
        driver.ask(ops.Allocate("a", size, gate=True), why, unchanged, outcome=ops.Refused)
    driver.ask(ops.Free("a"), "it never held anything", nothing("nothing is answered"), gone("a"))
    driver.ask(ops.Submit("b", prompt(2 * size)), "2 blocks of 4", hash_blocks(2 * size))
    if driver.has("Allocate.reserved"):
        why = "3 of 4 blocks are reserved for others"
        driver.ask(ops.Allocate("b", 2 * size, reserved=3), why, unchanged, outcome=ops.Refused)
    ahead = size if driver.has("Allocate.lookahead") else 0
    count = 2 + ahead // size
    driver.ask(
        ops.Allocate("b", 2 * size, lookahead=ahead),
        f"room for {count} blocks, lookahead counted",
        new_blocks("b", count),
    )
    driver.ask(ops.Advance("b", (7,)), "computed, one token sampled", hash_blocks(2 * size + 1))


def caching_off(driver: ScenarioDriver, size: int) -> None:
    """Without a cache: no hash blocks, no hits."""
    if not driver.has("Shape.caching=False") or not driver.start("Caching off", shape_of(size, caching=False)):
        return
    tokens = prompt(2 * size)
    computed(driver, "a", tokens)
    driver.ask(ops.Submit("b", tokens), "the same prompt; no hashes with caching off", hash_blocks(len(tokens)))
    driver.ask(ops.Lookup("b"), "caching is off, so no hit", hit(0), unchanged)
    driver.ask(ops.Allocate("b", 2 * size), "two blocks of its own", new_blocks("b", 2))
    driver.ask(ops.Free("b"), "freed in the middle of a step", nothing("nothing is answered"), gone("b"))


def drafts(driver: ScenarioDriver, size: int) -> None:
    """Speculative decoding: rejected at once, and rejected late."""
    if not driver.has("drafts") or not driver.start("Drafts", shape_of(size)):
        return
    known = size + 1
    computed(driver, "a", prompt(known))
    known += 1

    def room(new: int) -> int:
        return max(0, -(-(known - 1 + new) // size) - len(table(driver, "a")))

    driver.ask(ops.Allocate("a", 3), "one known token and two drafts behind it", new_blocks("a", room(3)))
    known += 1
    driver.ask(ops.Advance("a", (7,), 2), "both drafts are rejected, one token is sampled", hash_blocks(known))
    driver.ask(ops.Allocate("a", 3), "two drafts again", new_blocks("a", room(3)))
    if driver.has("Reject"):
        driver.ask(ops.Advance("a"), "the step has run; what was sampled is told later", hash_blocks(known))
        driver.ask(
            ops.Reject("a", 2),
            "both drafts were rejected: two tokens fewer are computed",
            nothing("nothing is answered"),
        )
        known += 1
        driver.ask(ops.Advance("a", (7,)), "only the news of one sampled token", hash_blocks(known))
    driver.ask(ops.Free("a"), "freed", nothing("nothing is answered"), gone("a"))


def connector(driver: ScenarioDriver, size: int) -> None:
    """Tokens from outside: at once, and late."""
    if not driver.has("Allocate.external") or not driver.start("Tokens from outside", shape_of(size)):
        return
    tokens = prompt(3 * size)
    driver.ask(ops.Submit("a", tokens), "full hash blocks of the prompt", hash_blocks(len(tokens)))
    why = "two blocks come from outside, one is computed"
    driver.ask(ops.Allocate("a", size, external=2 * size), why, grows_to("a", 3))
    driver.ask(ops.Advance("a", (7,)), "computed, one token sampled", hash_blocks(len(tokens) + 1))
    if not driver.has("Allocate.delay"):
        return
    driver.ask(ops.Submit("b", prompt(3 * size, first=9)), "another prompt", hash_blocks(len(tokens)))
    driver.ask(ops.Allocate("b", 0, external=2 * size, delay=True), "room for what will arrive", grows_to("b", 2))
    driver.ask(ops.Arrive("b"), "it has arrived", nothing("nothing is answered"))
    driver.ask(ops.Allocate("b", size), "the rest of the prompt", new_blocks("b", 1))
    driver.ask(ops.Advance("b", (7,)), "computed, one token sampled", hash_blocks(len(tokens) + 1))
    if not driver.has("Arrive.missing"):
        return
    driver.ask(ops.Free("b"), "freed", nothing("nothing is answered"), gone("b"))
    driver.ask(ops.Submit("c", prompt(3 * size, first=19)), "another prompt", hash_blocks(len(tokens)))
    driver.ask(ops.Allocate("c", 0, external=2 * size, delay=True), "room for what will arrive", grows_to("c", 2))
    driver.ask(ops.Arrive("c", size), "one block has arrived, one has not", nothing("nothing is answered"))
    driver.ask(ops.Allocate("c", 2 * size), "that block and the rest are computed here", new_blocks("c", 1))
    driver.ask(ops.Advance("c", (7,)), "computed, one token sampled", hash_blocks(len(tokens) + 1))


def outside(driver: ScenarioDriver, size: int) -> None:
    """Somebody else holds blocks, and makes the core forget some."""
    if not (driver.has("Take") or driver.has("Evict")) or not driver.start("Others who hold blocks", shape_of(size)):
        return
    taken = driver.ask(ops.Take(1), "one free block", is_tuple)
    if taken is not None and isinstance(taken.value, tuple):
        block = tuple(int(one) for one in taken.value if isinstance(one, int))
        driver.ask(ops.Touch(block), "held once more", nothing("nothing is answered"))
        driver.ask(ops.Release(block), "one reference given back, still held", nothing("nothing is answered"))
        driver.ask(ops.Release(block), "free again", nothing("nothing is answered"))
    tokens = prompt(2 * size)
    computed(driver, "a", tokens)
    first = tuple(table(driver, "a")[:1])
    driver.ask(ops.Free("a"), "free, but cached", nothing("nothing is answered"), gone("a"))
    if not first:
        return
    driver.ask(ops.Evict(first), "its content is forgotten", nothing("nothing is answered"))
    if driver.has("Evict"):
        driver.ask(ops.Submit("b", tokens), "the same prompt", hash_blocks(len(tokens)))
        driver.ask(ops.Lookup("b"), "its first block was forgotten, so no hit", hit(0), unchanged)


def gathered(driver: ScenarioDriver, size: int) -> None:
    """What gathers until it is drained."""
    if not driver.has("TakeEvents") and not driver.has("TakeNewBlockIds") and not driver.has("TakeStats"):
        return
    if not driver.start("What gathers", shape_of(size, events=True, stats=True)):
        return
    computed(driver, "a", prompt(2 * size))
    for kind, checks in ((ops.TakeEvents, (is_tuple,)), (ops.TakeNewBlockIds, (is_tuple,)), (ops.TakeStats, ())):
        driver.ask(kind(), "what has gathered since the start", *checks)
        driver.ask(kind(), "nothing has gathered since", *checks)


SCRIPTS: Mapping[str, Script] = {
    script.__name__: script
    for script in (
        one_request,
        in_pieces,
        shared_prefix,
        full_pool,
        more_room,
        caching_off,
        drafts,
        connector,
        outside,
        gathered,
    )
}
