"""What an answer must be. Each check raises `Wrong` with the name of the mistake, what was expected, and what to do."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ....model.ops import NULL, Allocate, Done, Failed, Free, Lookup, Operation, Outcome, Refused, Shape
from ....model.snapshot import Snapshot
from ...findings.difference import difference
from ...findings.words import plural
from ...oracles.contract.designs import without_evictions
from ...targets.answers import hit_of, problem_with_answer
from ...targets.block_ids import stray_id
from ...targets.declarations import EXCHANGES
from .lines import Wrong


class Answer(NamedTuple):
    """An answer of the target, and what is needed to judge it."""

    operation: Operation | None
    """None for the start."""
    outcome: Outcome
    before: Snapshot
    after: Snapshot
    shape: Shape
    hides: frozenset[str]
    outside: Sequence[int] = ()
    """Blocks that somebody outside holds, as often as they are held."""
    designs: frozenset[str] = frozenset()
    """What the target does otherwise than most (`declarations.DESIGNS`)."""

    def shows(self, name: str) -> bool:
        """True if the target does not hide this."""
        return name not in self.hides

    @property
    def value(self) -> object:
        """What `Done` carries; None for another outcome."""
        return self.outcome.value if isinstance(self.outcome, Done) else None

    @property
    def held(self) -> Counter[int]:
        """How often each block is held after the answer, the null block left out."""
        tables = (table for of_group in self.after.tables for table in of_group.values())
        counts = Counter(self.outside) + Counter(block for table in tables for block in table)
        del counts[NULL]
        return counts


Check: TypeAlias = Callable[[Answer], None]
NO_HIT = (
    "let others find computed blocks from Advance on, at the latest, and in a full pool as well; a core without a "
    "cache names 'Lookup' in `lacks`"
)
NULL_BLOCK = (
    "block 0 is the null block, which is never free and never handed out: build your core with shape.num_blocks - 1 "
    "blocks, add 1 to each id that you show, and take 1 off each id that you are given"
)
PER_GROUP = "write a tuple for each group, also where there is one group: ((1, 2),)"


# What holds of every answer.


def right_types(answer: Answer) -> None:
    """The answer has the types that every answer must have."""
    if problem := problem_with_answer(answer.outcome, answer.after, len(answer.shape.groups)):
        per_group = "one for each of the" in problem
        advice = "correct the type; the fields of a snapshot are listed in docs/guide/your-engine.md"
        raise Wrong("per-group" if per_group else "types", problem, PER_GROUP if per_group else advice)


def right_kind(answer: Answer, wanted: type[Outcome]) -> None:
    """The outcome is `Done`, or `Refused` where the script expects it."""
    operation, outcome = answer.operation, answer.outcome
    if isinstance(outcome, wanted):
        return
    kind = type(operation).__name__
    if isinstance(outcome, Failed) and isinstance(operation, Free):
        advice = "look the request up with a default, and answer Done() if nobody knows it"
        raise Wrong("free-unknown", "Done(), also for a request that is unknown or holds nothing", advice)
    if wanted is Refused and isinstance(outcome, Failed):
        raise Wrong("raised-for-no-room", "Refused(): there is no room", "answer Refused() where your core has no room")
    if wanted is Refused:
        advice = "count what is missing before anything is handed out, and answer Refused() if it is not there"
        raise Wrong("not-refused", "Refused(): there is no room for it", advice)
    if isinstance(outcome, Failed):
        advice = f"correct the target, or name {kind!r} in `lacks` if your core has no such thing"
        raise Wrong("raised", "no error: a scheduler may ask this now", advice)
    if isinstance(operation, Lookup):
        advice = (
            "with nothing cached, caching off or skip_lookup set, answer Done((0, ((),))); only Allocate is refused"
        )
        raise Wrong("lookup-refused", "a hit, perhaps of no tokens; a lookup is never refused", advice)
    if isinstance(operation, Allocate):
        free = answer.before.num_free if answer.shows("num_free") else len(answer.before.free)
        advice = "count what the table has already, and as free also cached blocks that nobody holds"
        raise Wrong("refused-with-room", f"Done: what is missing is not more than the {free} free blocks", advice)
    raise Wrong(
        "refused", f"Done: {kind} is never refused", "Refused() says that Allocate has no room now, nothing else"
    )


def no_lists(answer: Answer) -> None:
    """Values are tuples at every depth."""

    def has_list(value: object) -> bool:
        return isinstance(value, list) or (isinstance(value, tuple) and any(map(has_list, value)))

    if has_list(answer.value):
        raise Wrong(
            "lists", "tuples at every depth: a value is compared and stored", "write tuple(...) around each list"
        )


def only_blocks(answer: Answer) -> None:
    """Every id in the answer and in the state is a block of the pool."""
    size = answer.shape.num_blocks
    if stray := stray_id(answer.operation, answer.outcome, answer.after, size, answer.hides):
        raise Wrong("ids", f"block ids from 0 to {size - 1}; {stray}", NULL_BLOCK)


def sound_state(answer: Answer) -> None:
    """The parts of the snapshot agree with each other: free blocks, counts and tables."""
    after, size = answer.after, answer.shape.num_blocks
    if any(group.sink_len for group in answer.shape.groups):
        return  # blocks of sinks are held by nobody that is shown; the contract knows them
    held = answer.held
    if answer.operation is None and answer.shows("free"):
        _sound_free(answer, held)  # a wrong pool size has many consequences
    if answer.shows("ref_cnt") and answer.shows("tables"):
        if len(after.ref_cnt) != size:
            said = f"ref_cnt of {size} blocks, the null block's first; it has {len(after.ref_cnt)}"
            raise Wrong("ref-cnt-length", said, "put a 0 for the null block in front, or name 'ref_cnt' in `hides`")
        for block in range(1, size):
            if after.ref_cnt[block] != held[block]:
                said = f"block {block} is held {held[block]} times, ref_cnt says {after.ref_cnt[block]}"
                advice = "count one reference for each table, also where a hit is shared; index ref_cnt by block id"
                raise Wrong("references", said, advice)
    for name in ("labels", "earliest"):
        shown = getattr(after, name)
        if answer.shows(name) and len(shown) != size:
            said = f"{name} of {size} blocks, the null block's first; it has {len(shown)}"
            raise Wrong(f"{name}-length", said, f"show None for a block without one, or name {name!r} in `hides`")
    if answer.shows("free"):
        _sound_free(answer, held)
    elif answer.shows("num_free") and after.num_free > size - 1 - len(held):
        raise Wrong("free-list", f"{size - 1 - len(held)} free blocks at most", "blocks that are held are not free")


def _sound_free(answer: Answer, held: Counter[int]) -> None:
    after, size = answer.after, answer.shape.num_blocks
    free = set(after.free)
    if NULL in free:
        raise Wrong("null-block", f"free blocks from 1 to {size - 1}, 0 is among them", NULL_BLOCK)
    if len(free) != len(after.free):
        raise Wrong("free-twice", "each free block once", "show each block that can be handed out once, in its order")
    if both := sorted(free & held.keys()):
        raise Wrong("free-list", f"block {both[0]} is held, so it is not free", "take what is handed out off `free`")
    if answer.shows("num_free") and after.num_free != len(after.free):
        said = f"num_free {len(after.free)}, as many as `free` has; it is {after.num_free}"
        raise Wrong("num-free", said, "show the number of the blocks in `free`: all that can be handed out")
    expected = size - 1 - len(held)
    if len(free) != expected and (answer.shows("tables") or answer.operation is None):
        _wrong_number_of_free(answer, len(free), expected)


def _wrong_number_of_free(answer: Answer, shown: int, expected: int) -> None:
    said = f"{plural(expected, 'free block')}: all {answer.shape.num_blocks} but the null block and those that are held"
    said += f"; {shown} are shown"
    if answer.operation is None:
        advice = (
            "shape.num_blocks counts the null block: a core without one gets num_blocks - 1 blocks, one that makes "
        )
        raise Wrong("pool-size", said, advice + "a null block itself gets num_blocks")
    advice = "`free` are all blocks that can be handed out, those that still hold cached content included"
    raise Wrong("free-without-cached" if shown < expected else "free-too-many", said, advice)


class LabelOrder:
    """Labels count up in the order in which they are first shown; one object for each core."""

    def __init__(self) -> None:
        self._seen = 0

    def __call__(self, answer: Answer) -> None:
        """Look at the next snapshot of this core."""
        if not answer.shows("labels") or answer.shape.events:
            return
        for label in answer.after.labels:
            if label is not None and label > self._seen:
                said = f"labels that count up as they are first shown; {label} came before {self._seen}"
                advice = "make one Labels object in `start` and call it on each hash, blocks in the order of their ids"
                raise Wrong("labels-order", said, advice)
            self._seen += label == self._seen


# What a script expects.


def unchanged(answer: Answer) -> None:
    """Nothing that can be seen has changed, but what gathers to be drained."""
    after = answer.after
    before = answer.before._replace(events=after.events, new_block_ids=after.new_block_ids, stats=after.stats)
    after = without_evictions(answer.designs, answer.hides, before, after)
    if before != after:
        what = "; ".join(difference(before, after))
        kind = "refused" if isinstance(answer.outcome, Refused) else "answered"
        advice = "check first, and change the core only after; what is only read changes nothing"
        raise Wrong(f"changed-when-{kind}", f"nothing changes; changed: {what}", advice)


def hash_blocks(tokens: int) -> Check:
    """The value is the number of full hash blocks of so many tokens."""

    def check(answer: Answer) -> None:
        number = tokens // answer.shape.hash_block_size if answer.shape.caching else 0
        if answer.value != number:
            advice = "answer Done(known tokens // shape.hash_block_size); 0 with caching off"
            raise Wrong("hash-blocks", f"Done({number}): {tokens} tokens are known", advice)

    return check


def hit(tokens: int, limit: int | None = None, *, at_least: bool = False) -> Check:
    """The value is a hit of so many tokens. A prompt of `limit` tokens leaves one to compute.

    `at_least`: a shorter hit would be right as well.
    """

    def check(answer: Answer) -> None:
        found, size = (
            hit_of(answer.outcome) if isinstance(answer.outcome, Done) else None,
            answer.shape.groups[0].block_size,
        )
        if found is None or len(found[1]) != len(answer.shape.groups):
            wanted = "(tokens, block ids for each group), as in Done((4, ((1,),)))"
            raise Wrong("lookup-value", wanted, PER_GROUP + " behind the number of tokens")
        length, blocks = found[0], found[1][0]
        if limit is not None and length >= limit:
            advice = "look up all tokens but the last, at least one is left to compute"
            raise Wrong("hit-of-all", f"a hit of {tokens} tokens at most: the prompt has {limit}", advice)
        if length and length * size == tokens:
            raise Wrong("hit-in-blocks", f"{tokens} tokens, not {plural(length, 'block')}", "give the length in tokens")
        if length > tokens:
            advice = "compare whole contents with salt and adapter, forget reused blocks, obey skip_lookup"
            raise Wrong("hit-too-long", f"a hit of {tokens} tokens", advice)
        if length < tokens and not at_least:
            raise Wrong("no-hit", f"a hit of {tokens} tokens", NO_HIT)
        if len(blocks) * size != length and (blocks or answer.shows("tables")):
            raise Wrong(
                "hit-blocks",
                f"{length // size} blocks for {length} tokens",
                "show one block id for each block of the hit",
            )

    return check


def new_blocks(request: str, count: int, hit_blocks: Sequence[int] = ()) -> Check:
    """The value is so many new block ids, and the table is what it was, the hit, and these."""

    def check(answer: Answer) -> None:
        wanted = f"Done({(tuple(range(1, count + 1)),)!r}) or so: {plural(count, 'new block')}, for each group a tuple"
        new = _only_new(answer, request, wanted, hit_blocks)
        if not answer.shows("tables"):
            return  # the blocks may be left out of answers as well
        if len(new) != count:
            advice = "a table has room for computed, hit and new tokens: so many by the block size, rounded up"
            raise Wrong("new-blocks", wanted, advice)
        _same_table(answer, request, [*hit_blocks, *new])

    return check


def room_for(request: str, least: int, most: int) -> Check:
    """The table has so many blocks now, and the value is what was added to it."""

    def check(answer: Answer) -> None:
        whole = f", or {most} for the whole prompt" if most > least else ""
        wanted = f"a table of {plural(least, 'block')}{whole}, and the new ones of them, for each group a tuple"
        new = _only_new(answer, request, wanted)
        if not answer.shows("tables"):
            return
        if not least <= len(answer.after.tables[0].get(request, [])) <= most:
            advice = "count the blocks that are there: add one only where the next token has no place in them"
            raise Wrong("pieces", wanted, advice)
        _same_table(answer, request, new)

    return check


def _only_new(answer: Answer, request: str, wanted: str, hit_blocks: Sequence[int] = ()) -> list[int]:
    """The blocks in the value, which has a tuple for each group, and holds neither the hit nor the table before."""
    value = answer.value
    if not isinstance(value, tuple) or any(not isinstance(row, tuple) for row in value):
        flat = isinstance(value, tuple)
        raise Wrong("not-per-group" if flat else "allocate-value", wanted, PER_GROUP)
    new = [block for block in value[0] if isinstance(block, int)] if value else []
    if NULL in new:
        raise Wrong("null-block", wanted, NULL_BLOCK)
    before, table = (list(shown.tables[0].get(request, [])) for shown in (answer.before, answer.after))
    had = [*before, *hit_blocks]
    if not answer.shows("tables"):
        return new
    if had and (new == table or new[: len(hit_blocks)] == list(hit_blocks) != []):
        advice = "answer only the blocks that this call has added: neither the hit nor the whole table"
        raise Wrong("not-only-new", wanted, advice)
    return new


def _same_table(answer: Answer, request: str, added: Sequence[int]) -> None:
    """The table is what it was, and what was added behind."""
    whole, table = [*answer.before.tables[0].get(request, []), *added], answer.after.tables[0].get(request, [])
    same = len(table) == len(whole) if EXCHANGES in answer.designs else list(table) == whole
    if not same:
        advice = "show in `tables` for each request all its blocks in order: the hit first, then what was added"
        raise Wrong("table", f"the table of {request}: {whole}; shown is {list(table)}", advice)


def grows_to(request: str, count: int) -> Check:
    """The table has so many blocks now, and the value is its end: blocks of tokens from outside may be left out."""

    def check(answer: Answer) -> None:
        value, table = answer.value, list(answer.after.tables[0].get(request, []))
        if not answer.shows("tables"):
            return
        if len(table) != count:
            advice = "give tokens that come from outside room in the table, between the hit and the new tokens"
            raise Wrong("external-room", f"a table of {plural(count, 'block')}; it has {len(table)}", advice)
        row = value[0] if isinstance(value, tuple) and value else None
        if not isinstance(row, tuple) or list(row) != table[len(table) - len(row) :]:
            raise Wrong(
                "allocate-value", f"the last blocks of the table, as in Done({(tuple(table[-1:]),)!r})", PER_GROUP
            )

    return check


def gone(request: str) -> Check:
    """The request holds nothing any more."""

    def check(answer: Answer) -> None:
        if answer.after.tables[0].get(request):
            advice = "give the blocks back, and show no table (or an empty one) from then on"
            raise Wrong("table-left", f"{request} holds no blocks; shown is {answer.after.tables[0][request]}", advice)

    return check


def is_value(value: object, why: str) -> Check:
    """The value is this one."""

    def check(answer: Answer) -> None:
        if answer.value != value or type(answer.value) is not type(value):
            kind = type(answer.operation).__name__
            shown = "" if value is None else repr(value)
            raise Wrong(f"value-of-{kind}", f"Done({shown}): {why}", f"answer Done({shown}) here")

    return check


def is_tuple(answer: Answer) -> None:
    """The value is a tuple of what has gathered."""
    if not isinstance(answer.value, tuple):
        kind = type(answer.operation).__name__
        raise Wrong(f"value-of-{kind}", "a tuple of what has gathered", f"name {kind!r} in `lacks` if nothing gathers")
