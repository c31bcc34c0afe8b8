"""What the contract keeps track of in a run: the contents of requests, and what each block was last filled with.

A content is a number that stands for a prefix: adapter, salt, and all tokens (with embedding rows and multimodal items)
up to the last one. A block counts as filled when a step, or external tokens, have reached the end of its table entry
and all its tokens are known; it then holds the content of the prefix up to there, for one group. All of this follows
from the operations and from the target's tables, hits and new blocks; nothing else of the target is believed.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import cache
from itertools import chain

from ....model import ops
from ....model.arith import cdiv
from ....model.attention import Mamba, Step, Written
from ....model.features import checkpoints
from ....model.kinds.rswa import attends, has_gap, told_apart
from ....model.ops import NULL, Done, Operation, Shape
from ....model.snapshot import Snapshot
from ...findings.oracle_names import PASSABLE
from ...kinds.compressed import rules_with
from ...targets.declarations import COUNTS_AT_LAUNCH, EVICTS_MORE, EXCHANGES, PUBLISHES_AT_END, designs_with
from .properties import Break, Violation
from .tracked import Begun, Replay, Tracked

BY_SCHEDULER = "states-by-scheduler"
"""The loss of a core that leaves it to its scheduler that states are written where blocks end."""
UNFILLED = -1
"""Content of a block that has not been filled since it was handed out."""


class RunRecord:
    """Requests, contents and blocks of one run."""

    def __init__(
        self,
        shape: Shape,
        hides: Collection[str] = (),
        losses: Collection[str] = (),
        passing: Collection[str] = (),
        designs: Collection[str] = (),
    ) -> None:
        self.shape = shape
        self.hides = frozenset(hides)
        self.designs = designs_with(designs, hides)
        """What the target does otherwise than most, and is no mistake."""
        self.labels: Sequence[int | None] = ()
        """What blocks are registered as now; empty if that is not shown."""
        self.held: Counter[int] = Counter()
        """How often each block is held now, by tables and outside."""
        self.losses = frozenset(losses)
        """What the target is known for: counted, not reported."""
        self.passing = frozenset(passing)
        """Properties whose violations are gathered in `passed` and not raised; some of `oracle_names.PASSABLE`."""
        self.passed: list[Violation] = []
        self.violated: list[Violation] = []
        """Violations at the operation that is being judged."""
        self.reached: Counter[str] = Counter()
        self.rules = rules_with(shape, self.designs)
        sizes = [(rule.group.sink_len, rule.b) for rule in self.rules if rule.sinks]
        self.sinks = sum([cdiv(length, size) for length, size in sizes])
        """Number of blocks that are set aside for sinks."""
        self.requests: dict[str, Tracked] = {}
        self.content = [UNFILLED] * shape.num_blocks
        """Per block: the content (prefix and group) that it was last filled with."""
        self.begun: list[Begun | None] = [None] * shape.num_blocks
        """Per block: what it holds, full or not."""
        self.small_hash_blocks = [
            len(shape.groups) > 1 and not rule.scratch and rule.b > shape.hash_block_size for rule in self.rules
        ]
        """Per group: True if hash blocks are smaller than blocks, so that part of a block can have an identity."""
        self.registered_in_part: set[int] = set()
        """Blocks that got their identity before they were full."""
        self.fillings = [0] * shape.num_blocks
        """Per block: how often it was filled, handed out or evicted. Same number: same content, still registered."""
        self.filled_in_step = [0] * shape.num_blocks
        """Per block: the scheduler step in which it was filled."""
        self.scheduler_step = 1
        self.allocations = 0
        """How often blocks were asked for. If the target shows no labels, any of these may have evicted content."""
        self.replays: dict[int, Replay] = {}
        """Prompts that were computed completely, by the content of their last token."""
        self._numbers: dict[Hashable, int] = {}
        self._gaps = [has_gap(rule) for rule in self.rules]
        self._needed = cache(self._needed_in)

    def shows(self, *names: str) -> bool:
        """True if the target shows all these fields of a snapshot."""
        return not self.hides or self.hides.isdisjoint(names)

    def break_unless_known(self, losses: Iterable[str], id: str, what: str, kind: str = "") -> None:
        """Property `id` does not hold: raises Break, or counts one of the losses that explain it, if the target
        declares it."""
        for loss in losses:
            if loss in self.losses:
                self.reached[f"contract: known loss {loss}"] += 1
                return
        self.pass_or_break(Break(id, what, kind))

    def pass_or_break(self, broken: Break) -> None:
        """A property does not hold: note the violation if it is one of those to pass, else raise it. What could be
        passed is judged on behind, too, to the end of the operation (`violated`)."""
        if broken.violation.id in self.passing:
            self.passed.append(broken.violation)
        elif broken.violation.id in PASSABLE:
            self.violated.append(broken.violation)
        else:
            raise broken

    @property
    def merges(self) -> bool:
        """True if blocks of the same content may be exchanged for one another."""
        return EXCHANGES in self.designs

    # What a query reads.

    def needed(self, request: Tracked, group: int, computed: int) -> tuple[int, ...]:
        """Table entries with tokens that the request's query at position `computed` reads (by `Rule.attends`)."""
        return self._needed(group, computed, len(request.submit.prompt) if self._gaps[group] else 0)

    def _needed_in(self, group: int, computed: int, prompt: int) -> tuple[int, ...]:
        rule = self.rules[group]
        if rule.by_encoder:
            return ()
        return tuple(dict.fromkeys(t // rule.b for t in range(computed) if attends(rule, prompt, computed, t)))

    # Content.

    def key(self, request: Tracked, group: int, entry: int) -> int | None:
        """The content that a full table entry must hold for the request; None if not all its tokens are known."""
        end = (entry + 1) * self.rules[group].b
        if end > len(request.contents) or self.rules[group].by_encoder:
            return None
        return request.contents[end - 1] * len(self.rules) + group

    def submit(self, operation: ops.Submit) -> None:
        """A request has arrived."""
        request = Tracked(operation, [], filled=[[] for _ in self.rules])
        self.requests[operation.request] = request
        self.learn(request, operation.prompt)

    def learn(self, request: Tracked, tokens: Sequence[int]) -> None:
        """Tokens have become known."""
        submit, numbers, contents = request.submit, self._numbers, request.contents
        request.tokens += tokens
        root = ("root", submit.adapter or None, submit.adapter_version, submit.salt or None)
        before = contents[-1] if contents else self._number(root)
        plain, gaps, prompt = submit.embeds is None and not submit.items, any(self._gaps), len(submit.prompt)
        for token in tokens:
            what: Hashable = (before, token) if plain else (before, token, *self._extras(submit, len(contents)))
            if gaps and told_apart(self.rules, prompt, len(contents)):
                what = (what, prompt)
            before = numbers.setdefault(what, len(numbers))
            contents.append(before)

    def _number(self, what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _extras(self, submit: ops.Submit, at: int) -> tuple[Hashable, ...]:
        """What besides the token decides the content of a position (items, embeddings); empty if nothing does."""
        items = tuple(
            (item.identifier, item.length, at - item.offset)
            for item in submit.items
            if item.offset <= at < item.offset + item.length
        )
        row = submit.embeds[at] if submit.embeds is not None and at < len(submit.embeds) else None
        return (items, row) if items or row is not None else ()

    def is_copy(self, old: int, new: int) -> bool:
        """True if a table entry may change from block `old` to `new`: the target merges blocks of equal content."""
        return self.merges and NULL not in (old, new) and self.content[old] == self.content[new] != UNFILLED

    def is_merged(self, request: Tracked, group: int, entry: int, block: int) -> bool:
        """True if this block may stand for an entry that the request fills in this step: the target merges blocks, and
        this one already holds all that the entry will hold."""
        return (
            self.merges and self.content[block] != UNFILLED and self.content[block] == self.key(request, group, entry)
        )

    def completes(self, request: Tracked, advance: ops.Advance, group: int, entry: int) -> int | None:
        """The content of an entry that is full once this step has run, drafts that it accepts included; None if it is
        not full then."""
        b, end = self.rules[group].b, request.computed + request.scheduled - advance.rejected
        after = Tracked(request.submit, list(request.contents))
        self.learn(after, advance.sampled)
        return self.key(after, group, entry) if (entry + 1) * b <= end else None

    def follow_exchanges(self, request: Tracked, tables: Sequence[dict[str, list[int]]]) -> None:
        """Blocks of the same content may stand in the request's tables now instead of those that were filled."""
        for group, row in enumerate(request.filled) if EXCHANGES in self.designs else ():
            table = tables[group].get(request.submit.request, [])
            for entry, ((was, _), now) in enumerate(zip(row, table, strict=False)):
                if now not in (NULL, was):
                    row[entry] = (now, self.fillings[now])
                    self.reached[f"contract: by design {EXCHANGES}"] += 1

    def settled(self, request: Tracked) -> int:
        """Number of tokens that cannot be taken back and count as computed: see `Tracked.settled`."""
        if COUNTS_AT_LAUNCH not in self.designs:
            return request.settled
        return max(request.settled, min(request.computed + request.scheduled, len(request.contents) - 1))

    def fill(self, request: Tracked, tables: Sequence[dict[str, list[int]]], steps: Written) -> None:
        """Record the blocks whose entries have become full, and how far the next entry is filled. `steps`: which
        states stand in their entries now."""
        name, known = request.submit.request, len(request.contents)
        full = min(request.written, known)
        for group, rule in enumerate(self.rules):
            filled, end = request.filled[group], full // rule.b
            if (len(filled) >= end and not self.small_hash_blocks[group]) or rule.by_encoder:
                continue
            table = tables[group].get(name, [])
            for entry in range(len(filled), min(end, len(table))):
                left = checkpoints.left(rule, steps.last).get(entry)
                if (
                    left is not None and table[entry] != NULL and left % rule.b == 0
                ):  # a state that stands there instead
                    self._fill(table[entry], request, group, left)
                other = left is not None and left != (entry + 1) * rule.b
                block = NULL if other or not self._is_written(steps, known, group, entry) else table[entry]
                if block == NULL != table[entry] and max(request.computed, request.written) > known:
                    break  # drafts will decide
                if block != NULL and not self.is_merged(request, group, entry, block):
                    self._fill(block, request, group, (entry + 1) * rule.b)
                filled.append((block, self.fillings[block]))  # the null block for what holds another state
            if self.small_hash_blocks[group] and end < len(table) and table[end] != NULL and full % rule.b:
                self.begun[table[end]] = Begun(request.contents, group, end, full)

    def _fill(self, block: int, request: Tracked, group: int, end: int) -> None:
        """The block holds the content of the first `end` tokens, which end where a block does."""
        self.content[block] = request.contents[end - 1] * len(self.rules) + group
        self.begun[block] = Begun(request.contents, group, end // self.rules[group].b - 1, end)
        self.fillings[block] += 1
        self.filled_in_step[block] = self.scheduler_step

    def _is_written(self, steps: Written, known: int, group: int, entry: int) -> bool:
        """False for a state that no step wrote into the entry of its block (`model.attention.Written`). `known`: tokens
        of the request. If the last step begins behind them, those before the last of them are what came of a step
        with drafts before it, and the state at the last block end among these stands as well."""
        rule = self.rules[group]
        if not isinstance(rule, Mamba) or self._stands(steps, rule, entry):
            return True
        settled = steps._replace(last=steps.last._replace(start=known - 1))
        if (
            steps.last.start > known
            and settled.last.start >= (entry + 1) * rule.b
            and self._stands(settled, rule, entry)
        ):
            return True
        self.reached["contract: block of a state that nobody writes"] += 1
        if BY_SCHEDULER in self.losses:
            self.reached[f"contract: known loss {BY_SCHEDULER}"] += 1
        return BY_SCHEDULER in self.losses

    @staticmethod
    def _stands(steps: Written, rule: Mamba, entry: int) -> bool:
        """True if the entry holds the state at the end of its block: left there on the step's way, or at its end."""
        left = checkpoints.left(rule, steps.last).get(entry)
        return steps.stands(rule, entry) if left is None else left == (entry + 1) * rule.b

    def begins_with(self, block: int, request: Tracked, group: int, length: int) -> bool:
        """True if the block holds the request's tokens from the start of the last entry up to token `length`."""
        begun = self.begun[block]
        return (
            begun is not None
            and (begun.group, begun.entry) == (group, (length - 1) // self.rules[group].b)
            and begun.end >= length
            and begun.contents[length - 1] == request.contents[length - 1]
        )

    def may_be_registered(self, block: int) -> bool:
        """True if the block, or at least one hash block of it, is full."""
        begun = self.begun[block]
        if self.content[block] != UNFILLED or begun is None:
            return self.content[block] != UNFILLED
        whole = begun.end - begun.entry * self.rules[begun.group].b
        return self.small_hash_blocks[begun.group] and whole >= self.shape.hash_block_size

    def handed_out(self, blocks: Collection[int]) -> None:
        """These blocks were handed out: what they held is gone."""
        for block in blocks:
            self.content[block] = UNFILLED
            self.begun[block] = None
            self.fillings[block] += 1

    def forgotten(self, blocks: Collection[int]) -> None:
        """These blocks were evicted: they keep their content, but a lookup need not find it any more."""
        for block in blocks:
            self.fillings[block] += 1

    def attach(self, request: Tracked, tables: Sequence[dict[str, list[int]]]) -> None:
        """The request's tables begin with the blocks of a hit, which were filled before."""
        hit = request.hit[0] if request.hit else 0
        for group, rule in enumerate(self.rules):
            table = tables[group].get(request.submit.request, [])
            request.filled[group][:] = [(block, self.fillings[block]) for block in table[: hit // rule.b]]

    def _note_replay(self, request: Tracked, computed_before: int) -> None:
        """Record the prompt as computed if the last step has completed it."""
        if computed_before < len(request.submit.prompt) <= request.computed:
            self.note_replay(request)

    def note_replay(self, request: Tracked) -> None:
        """Record which blocks hold the request's prompt, all of which has been computed."""
        last = request.contents[len(request.submit.prompt) - 1]
        entries = tuple(tuple(self._found(request, *entry) for entry in row) for row in request.filled)
        self.replays[last] = Replay(entries, self.allocations)

    def _found(self, request: Tracked, block: int, filling: int) -> tuple[int, int]:
        """The block that a lookup is to find for the content of this one, with its filling. Where equal blocks are
        merged, published at the end or evicted in nodes, that is the one of them that is registered."""
        alone = self.designs.isdisjoint((EXCHANGES, PUBLISHES_AT_END, EVICTS_MORE)) or not self.labels
        if alone or self.labels[block] is not None or self.fillings[block] != filling:
            return block, filling
        equal = (
            other
            for other, label in enumerate(self.labels)
            if label is not None and self.content[other] == self.content[block]
        )
        other = next(equal, block)
        evicted = EVICTS_MORE in self.designs and not self.held[block]
        if other == block and evicted and not self._others_stay(request):
            return NULL, 0  # all that nobody holds may be forgotten at once, this as well
        return other, self.fillings[other]

    def _others_stay(self, request: Tracked) -> bool:
        """True if something is registered that nobody holds, of another prefix."""
        own = {content * len(self.rules) + group for content in request.contents for group in range(len(self.rules))}
        return any(
            label is not None and not self.held[block] and self.content[block] not in own
            for block, label in enumerate(self.labels)
        )

    def may_be_evicted(self, block: int) -> bool:
        """True if it would not be seen, and would be no mistake, that the block is evicted though nobody asked for
        one."""
        return EVICTS_MORE in self.designs and not self.labels and not self.held[block]

    # Requests.

    def follow(self, operation: Operation, outcome: Done, tables: Sequence[dict[str, list[int]]]) -> None:
        """Bring the record up to date after an operation that returned; hits and new blocks are recorded separately."""
        request = self.requests.get(operation.request) if isinstance(operation, ops.OnRequest) else None
        match operation:
            case ops.Submit():
                self.submit(operation)
            case ops.StepStart():
                self.scheduler_step += 1
            case ops.Evict(blocks):
                self.forgotten(blocks)
            case ops.Reset() if outcome.value is True:
                self.forgotten(range(self.shape.num_blocks))
            case ops.Free(name) if request is not None:
                if self._publishes_late() and request.computed >= len(request.submit.prompt):
                    self.note_replay(request)  # an engine may register blocks late, but not later than this
                del self.requests[name]
        if request is not None:
            self._follow_request(request, operation, tables)

    def _follow_request(self, request: Tracked, operation: Operation, tables: Sequence[dict[str, list[int]]]) -> None:
        match operation:
            case ops.Allocate():
                self._allocated(request, operation)
                self.fill(request, tables, request.steps)
            case ops.Arrive(_, missing):
                request.computed -= missing
                self.reached["contract: load failed in part"] += missing > 0
                request.arriving, request.written = False, request.computed
                self.fill(request, tables, request.steps)
                request.computed -= request.computed == len(request.contents)
            case ops.Advance():
                before = request.computed
                if request.scheduled:
                    request.launch()
                request.computed += request.scheduled - operation.rejected
                request.written = request.computed if request.scheduled else request.written
                request.scheduled = 0
                self.learn(request, operation.sampled)
                request.update_pending()
                self.fill(request, tables, request.steps.then(Step(request.computed, request.computed), loaded=False))
                if not self._publishes_late():
                    self._note_replay(request, before)
            case ops.Reject(_, count):
                request.computed -= count
                request.written = request.computed
                request.update_pending()
            case ops.RemoveSkipped():
                request.cut = max(request.cut, request.computed)
            case ops.Preempt():
                request.start_over()

    def _publishes_late(self) -> bool:
        """True if it is not seen, or no mistake, that computed blocks are registered later than in their step."""
        return not self.shows("labels") or not self.designs.isdisjoint((EXCHANGES, PUBLISHES_AT_END))

    def _allocated(self, request: Tracked, op: ops.Allocate) -> None:
        hit = request.hit[0] if op.hit and request.hit else 0
        local = request.computed + hit
        total = local + op.external
        if op.hit:
            request.attached = hit
        request.cut = max(request.cut, total)
        request.computed, request.scheduled = total, op.new_tokens
        request.arriving, request.runs = op.delay, not op.delay
        drafts = max(0, total + op.new_tokens - max(total + 1, len(request.contents)))
        request.steps = request.steps.then(Step(total, total + op.new_tokens, drafts), loaded=op.external > 0)
        request.written = local if op.delay else total + op.new_tokens
        if total + op.new_tokens > len(request.contents):
            request.drafted = True


def held_by_tables(snapshot: Snapshot) -> Counter[int]:
    """Number of table entries that name each block, without the null block."""
    counts = Counter(chain.from_iterable([table for tables in snapshot.tables for table in tables.values()]))
    del counts[NULL]
    return counts
