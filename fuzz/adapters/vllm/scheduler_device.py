"""A simulated device: it computes nothing, but records what the steps of a scheduler write, and checks what they read.

Its input is what a worker of the engine gets, the scheduler's output. It keeps block tables as a worker does: ids are
appended and never removed. A slot holds a tag that stands for the content that was written: all tokens, items and
embeddings from the start of the request, and the adapter (not the salt, on which no value depends).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import Any

from ....model.attention import Mamba, Rule, Step, rule_for
from ....model.ops import NULL, Shape, Submit

POISON = 0
"""Tag of a slot that was never written, or that was cleared for its new owner."""


@dataclass(frozen=True)
class DeviceJob:
    """A request, with facts that the scheduler does not know."""

    submit: Submit
    max_tokens: int = 1
    drafts: tuple[tuple[int, int], ...] = ()
    """(tokens drafted, tokens of these that are right) for each decode step; repeated when used up."""
    adapter_version: int = 0
    """Version of the adapter's weights when the request arrives."""
    adapter_in_place: bool = False
    """True if all versions of the adapter have the same path."""
    external: int = 0
    """Leading tokens of the prompt that a connector can load."""
    priority: int = 0
    """The smaller, the earlier, where the scheduler goes by priorities."""
    loads_later: bool = False
    """True if they are loaded while the request waits, not within its first step."""

    def token(self, position: int) -> int:
        """The token at a position; behind the prompt it depends on the position only, so that a replay samples the same
        tokens."""
        prompt = self.submit.prompt
        return prompt[position] if position < len(prompt) else 1000 + position


@dataclass
class Resident:
    """A request that the device knows; lengths in tokens."""

    job: DeviceJob
    contents: list[int] = field(default_factory=list)
    """Tags of the known tokens."""
    tables: list[list[int]] = field(default_factory=list)
    computed: int = 0
    states: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Per group of Mamba layers: number of tokens up to which its state is computed, and the block that holds it."""
    decode_steps: int = 0


@dataclass(frozen=True)
class StepResult:
    """The result of one step."""

    sampled: Mapping[str, list[int]]
    """Per scheduled request, the sampled tokens; none after a chunk of a prompt."""
    wrong: tuple[str, ...]
    """Reads of wrong content, one line each."""


@dataclass(frozen=True)
class StepPiece:
    """One request's part of a step: positions `start .. end - 1`.

    `known` tokens were known before the step. Drafts begin at `first_end`; from `right` on they are wrong.
    """

    name: str
    start: int
    end: int
    right: int
    known: int
    first_end: int


class Device:
    """Executes the steps of a scheduler for `jobs`, in the order in which they are given."""

    def __init__(self, shape: Shape, jobs: Mapping[str, DeviceJob], asynchronous: bool) -> None:
        self.rules: list[Rule] = [rule_for(group, shape) for group in shape.groups]
        self._jobs = jobs
        self._asynchronous = asynchronous
        width = max(rule.b for rule in self.rules)
        self._pages = [[POISON] * width for _ in range(shape.num_blocks)]
        self._residents: dict[str, Resident] = {}
        self._loads: list[Callable[[], None]] = []
        self._numbers: dict[Hashable, int] = {}
        self._junk = count(-1, -1)

    # Steps and loads.

    def execute(self, output: Any, known: Mapping[str, int]) -> StepResult:
        """Run a step. `known`: number of tokens known to the scheduler, per request."""
        self._receive(output, known)
        self._prepare_pages(output)
        drafts = output.scheduled_spec_decode_tokens
        pieces = [
            self._piece(name, tokens, drafts.get(name) or ()) for name, tokens in output.num_scheduled_tokens.items()
        ]
        wrong = [line for piece in pieces for line in self._read_states(piece)]
        for piece in pieces:
            self._write(piece)
        for piece in pieces:
            wrong += self._read(piece)
        return StepResult({piece.name: self._advance(piece) for piece in pieces}, tuple(wrong))

    def decode_steps(self, name: str) -> int:
        """Number of steps with drafts that the request has made."""
        return self._residents[name].decode_steps

    def page(self, block: int) -> list[int]:
        """The tags in a block's slots."""
        return list(self._pages[block])

    def set_page(self, block: int, tags: Sequence[int]) -> None:
        """Write these tags into a block's slots, the first of them first."""
        self._pages[block][: len(tags)] = tags

    def load(self, name: str, tables: Sequence[Sequence[int]], start: int, end: int) -> None:
        """A connector loads positions `start .. end - 1` of a request. Done in the next step, after blocks are
        cleared."""
        self.when_cleared(partial(self.load_now, name, [list(table) for table in tables], start, end))

    def when_cleared(self, act: Callable[[], None]) -> None:
        """Do this in the next step, after its blocks are cleared and copied and before anything is computed."""
        self._loads.append(act)

    def load_now(self, name: str, tables: list[list[int]], start: int, end: int) -> None:
        """Write the loaded positions for which the tables have a block."""
        resident = Resident(self._jobs[name], tables=tables)
        self._learn(resident, end)
        for group, rule in enumerate(self.rules):
            table = resident.tables[group]
            if isinstance(rule, Mamba):
                for entry, after in rule.writes(Step(end - 1, end)).items():
                    self._put_state(resident, group, table, entry, after)
                continue
            for position in range(start, end):
                self._put(resident, group, rule, position, self._tag(resident, group, position))

    def _receive(self, output: Any, known: Mapping[str, int]) -> None:
        for data in output.scheduled_new_reqs:
            self._begin(data.req_id, data.block_ids, data.num_computed_tokens, known[data.req_id])
        cached = output.scheduled_cached_reqs
        for name, new, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True):
            if name in cached.resumed_req_ids:
                self._begin(name, new, computed, known[name])
            elif new is not None:
                for table, ids in zip(self._residents[name].tables, new, strict=True):
                    table += ids

    def _begin(self, name: str, block_ids: Iterable[Sequence[int]], computed: int, known: int) -> None:
        before = self._residents.get(name)
        resident = Resident(self._jobs[name], tables=[list(ids) for ids in block_ids], computed=computed)
        resident.decode_steps = before.decode_steps if before else 0
        self._learn(resident, known)
        for group, rule in enumerate(self.rules):
            entry = (computed - 1) // rule.b
            if isinstance(rule, Mamba) and computed and entry < len(resident.tables[group]):
                resident.states[group] = (computed, resident.tables[group][entry])
        self._residents[name] = resident

    def _prepare_pages(self, output: Any) -> None:
        """Clear blocks, then copy blocks, then load: all before anything is computed."""
        for block in getattr(output, "new_block_ids_to_zero", None) or ():
            self._pages[block] = [POISON] * len(self._pages[block])
        for copy in getattr(output, "kv_cache_block_copies", None) or ():
            self._pages[copy.dst_block_id] = list(self._pages[copy.src_block_id])
        for load in self._loads:
            load()
        self._loads.clear()

    def _piece(self, name: str, tokens: int, drafts: Sequence[int]) -> StepPiece:
        """One request's part of the step; the tokens of its right drafts become known."""
        resident = self._residents[name]
        start, known = resident.computed, len(resident.contents)
        end = start + tokens
        first_end = end - len(drafts)
        right = first_end
        if drafts:
            if resident.job.drafts and (self._asynchronous or drafts[0] >= 0):
                right += min(len(drafts), resident.job.drafts[resident.decode_steps % len(resident.job.drafts)][1])
            resident.decode_steps += 1
        self._learn(resident, right)
        return StepPiece(name, start, end, right, known, first_end)

    def _advance(self, piece: StepPiece) -> list[int]:
        """The right drafts and one more token; none if the step ended before the end of the known tokens."""
        resident = self._residents[piece.name]
        resident.computed = piece.right
        if piece.first_end < piece.known:
            return []
        self._learn(resident, piece.right + 1)
        return [resident.job.token(position) for position in range(piece.known, piece.right + 1)]

    # Contents.

    def _learn(self, resident: Resident, length: int) -> None:
        submit, contents = resident.job.submit, resident.contents
        while len(contents) < length:
            contents.append(self._content(submit, contents[-1] if contents else None, resident.job, len(contents)))

    def _content(self, submit: Submit, before: int | None, job: DeviceJob, at: int) -> int:
        row = submit.embeds[at] if submit.embeds is not None and at < len(submit.embeds) else None
        items = tuple(
            (item.identifier, item.length, at - item.offset)
            for item in submit.items
            if 0 <= at - item.offset < item.length
        )
        what = (
            before,
            (submit.adapter, job.adapter_version) if before is None and submit.adapter is not None else None,
            job.token(at) if row is None else None,
            row,
            items,
        )
        return self._numbers.setdefault(what, len(self._numbers) + 1)

    def _tag(self, resident: Resident, group: int, position: int) -> int:
        return resident.contents[position] * len(self.rules) + group

    # Keys and values.

    def _put(self, resident: Resident, group: int, rule: Rule, position: int, tag: int) -> None:
        entry = position // rule.b
        table = resident.tables[group]
        if entry < len(table) and table[entry] != NULL:
            self._pages[table[entry]][position % rule.b] = tag

    def _write(self, piece: StepPiece) -> None:
        resident = self._residents[piece.name]
        for group, rule in enumerate(self.rules):
            if isinstance(rule, Mamba):
                self._write_states(piece, resident, group, rule)
                continue
            for position in range(piece.start, piece.end):
                tag = self._tag(resident, group, position) if position < piece.right else next(self._junk)
                self._put(resident, group, rule, position, tag)

    def _read(self, piece: StepPiece) -> list[str]:
        """Check everything that the step's queries read, except those of wrong drafts. One line per group, about the
        first wrong position."""
        resident = self._residents[piece.name]
        lines = []
        for group, rule in enumerate(self.rules):
            if isinstance(rule, Mamba):
                continue
            first = max(0, rule.skipped(piece.start))
            wrong = next(islice(self._wrong(resident, group, rule, first, piece.right), 1), None)
            if wrong:
                lines.append(f"{piece.name}: the query at {piece.start} or behind reads position {wrong}")
        return lines

    def _wrong(self, resident: Resident, group: int, rule: Rule, first: int, end: int) -> Iterable[str]:
        table = resident.tables[group]
        for position in range(first, end):
            block = table[position // rule.b] if position // rule.b < len(table) else None
            where = f"{position} of group {group} ({rule.group.kind})"
            if block is None:
                yield f"{where}, for which there is no block"
            elif block == NULL:
                yield f"{where} in the null block"
            elif (found := self._pages[block][position % rule.b]) != self._tag(resident, group, position):
                yield f"{where} in block {block}, which holds {self._describe(found)}"

    def _describe(self, tag: int) -> str:
        if tag == POISON:
            return "what nobody wrote"
        return "a rejected draft" if tag < 0 else "another content"

    # States.

    def _read_states(self, piece: StepPiece) -> list[str]:
        resident = self._residents[piece.name]
        lines = []
        for group, rule in enumerate(self.rules):
            if not isinstance(rule, Mamba) or not piece.start:
                continue
            seen, block = resident.states.get(group, (0, NULL))
            where = f"{piece.name}: the state before position {piece.start} of group {group}"
            if block == NULL:
                lines.append(f"{where} is in no block")
            elif seen != piece.start:
                lines.append(f"{where} is not there: the last one has seen {seen} tokens")
            elif (found := self._pages[block][0]) != self._tag(resident, group, piece.start - 1):
                lines.append(f"{where} in block {block} holds {self._describe(found)}")
        return lines

    def _write_states(self, piece: StepPiece, resident: Resident, group: int, rule: Mamba) -> None:
        """Write what the rule says of the step (`model.attention.Mamba.writes`); behind wrong drafts it is junk."""
        table, step = resident.tables[group], Step(piece.start, piece.end, piece.end - piece.first_end)
        writes = rule.writes(step, piece.right)
        for entry, after in writes.items():
            self._put_state(resident, group, table, entry, after if after <= piece.right else None)
        read = max(entry for entry, after in writes.items() if after == piece.right)
        resident.states[group] = (piece.right, table[read] if read < len(table) else NULL)

    def _put_state(self, resident: Resident, group: int, table: Sequence[int], entry: int, after: int | None) -> None:
        """Write the state of so many tokens, or junk, if the entry has a block."""
        if entry < len(table) and table[entry] != NULL:
            tag = next(self._junk) if after is None else self._tag(resident, group, after - 1)
            self._pages[table[entry]] = [tag] * len(self._pages[table[entry]])
