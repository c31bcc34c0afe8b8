"""Checks of prefix-cache hits: that they are real (S7) and as long as possible (S14)."""

from collections.abc import Collection, Iterator, Sequence
from math import lcm

from ....model import lookup, ops
from ....model.arith import cdiv, down
from ....model.attention import Mamba
from ....model.features.inside import names_ahead
from ....model.ops import NULL, Done
from ....model.snapshot import Snapshot
from ...targets.answers import hit_of
from ...targets.declarations import SEVERAL_NAMES
from ..chunk_losses import is_astride
from .moves import Move, hit_row
from .properties import Break
from .run_record import RunRecord
from .tracked import Tracked


class Hits:
    """Judges lookups, and the allocations that use them."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        shape = record.shape
        self.groups = [group for group, rule in enumerate(record.rules) if rule.cacheable and not rule.scratch]
        self.unit = lcm(
            *(shape.hash_block_size if record.small_hash_blocks[g] else record.rules[g].b for g in self.groups)
        )
        """In tokens: every hit is a multiple of it. Whole entries, or whole hash blocks if these are smaller."""
        self.alignment = lookup.alignment(shape, record.rules)
        """In tokens: the longest hit is a multiple of it."""
        self.gives_up = {group for group in self.groups if record.rules[group].behind}
        """Groups that a draft model reads: a hit needs the block behind it, too."""

    # S7.

    def check_real(self, move: Move) -> None:
        """S7 of a lookup's answer, which is recorded."""
        record, request = self.record, move.request
        assert request is not None
        length, rows = self.check_length(move)
        for group, (row, end) in enumerate(zip(rows, self._ends(move, length, rows), strict=True)):
            self._check_row(request, group, end, row, move.before)
        record.reached["contract: S7 checked"] += 1
        record.reached["contract: hit"] += length > 0

    def _ends(self, move: Move, length: int, rows: Sequence[Sequence[int]]) -> list[int]:
        """Per group, the tokens that its row is to hold: those of the hit.

        For a connector, which brings the state that is needed with its tokens, states may end before it; that has to be
        told then. So may, for a core that is known for it, other groups.
        """
        record, request = self.record, move.request
        if request is None or request.asked is None or not request.asked.for_connector:
            return [length] * len(rows)
        ends, lags = [length] * len(rows), False
        for group in self.groups:
            rule, row = record.rules[group], rows[group]
            short = len(row) < cdiv(length, rule.b)
            if isinstance(rule, Mamba) and row and record.small_hash_blocks[group] and any(move.told):
                ends[group], lags = (len(row) - 1) * rule.b + 1, True  # somewhere inside its last block
            elif isinstance(rule, Mamba) and short:
                ends[group], lags = len(row) * rule.b, True
            elif rule.windowed and short and "windows-left-behind" in record.losses:
                record.reached["contract: known loss windows-left-behind"] += 1
                ends[group], lags = len(row) * rule.b, True
        if lags and not any(move.told):
            what = f"{move.name}: rows {rows} of a hit of {length} tokens: states end before it, and nobody is told"
            raise Break("S7", what, "lags untold")
        record.reached["contract: states end before a hit"] += lags
        return ends

    def _most(self, request: Tracked) -> int:
        """The most tokens that may be found by the last lookup."""
        asked, most = request.asked, len(request.contents) - 1
        return most if asked is None or asked.limit is None else min(most, asked.limit)

    def _asked(self, request: Tracked) -> Sequence[int]:
        """The groups that must hold a hit: for a connector, those beside states, if one has full attention."""
        rules = self.record.rules
        others = [group for group in self.groups if not isinstance(rules[group], Mamba)]
        connects = request.asked is not None and request.asked.for_connector
        return others if connects and any(rules[group].is_full for group in others) else self.groups

    def check_length(self, move: Move) -> tuple[int, list[list[int]]]:
        """S7 of a lookup's length alone. The hit, which is recorded: tokens, and blocks per group."""
        record, request = self.record, move.request
        assert request is not None
        assert isinstance(move.outcome, Done)
        hit = hit_of(move.outcome)
        if hit is None or len(hit[1]) != len(record.rules):
            what = f"{move.outcome.value!r} is no length with a row of blocks for each group"
            raise Break("S7", f"{move.name}: {what}", "no hit")
        assert isinstance(move.operation, ops.Lookup)
        request.hit, request.asked = hit, move.operation
        length, _ = hit
        limit = self._most(request)
        if length < 0 or length > limit or length % self.unit:
            most = "num_tokens - 1" if request.asked.limit is None else "what was asked for"
            equation = f"0 <= {length} <= {limit} ({most}) and {length} % {self.unit} == {length % self.unit}"
            raise Break("S7", f"{move.name}: hit of {length} tokens: {equation}", "another length")
        return hit

    def _check_row(self, request: Tracked, group: int, length: int, row: Sequence[int], seen: Snapshot) -> None:
        record, rule = self.record, self.record.rules[group]
        where = f"{request.submit.request}, group {group}: hit {list(row)} of {length} tokens"
        if group in self.groups and len(row) != cdiv(length, rule.b):
            what = f"{len(row)} entries of {rule.b} tokens, not {cdiv(length, rule.b)}"
            raise Break("S7", f"{where}: {what}", "another number of entries")
        for entry in record.needed(request, group, length):
            if row[entry] == NULL:
                losses = ["chunk-astride-block"] if is_astride(rule) else []
                what = f"the query at {length} reads entry {entry}, which is null"
                record.break_unless_known(losses, "S7", f"{where}: {what}", "no block")
        for entry, block in enumerate(row):
            if block == NULL:
                continue
            end = min((entry + 1) * rule.b, length)
            if not 0 < block < record.shape.num_blocks or not self._holds(block, request, group, end):
                what = f"block {block} does not hold the content of the prefix of {end} tokens"
                raise Break("S7", f"{where}: {what}", "another content")
            if record.shows("labels") and seen.labels[block] is None:
                what = f"block {block} is not registered, yet it is found"
                record.pass_or_break(Break("S10", f"{where}: {what}", "found unregistered"))

    def _holds(self, block: int, request: Tracked, group: int, end: int) -> bool:
        """True if the block holds the request's tokens from the start of the last entry up to token `end`."""
        record, rule = self.record, self.record.rules[group]
        if end % rule.b == 0:
            return record.key(request, group, end // rule.b - 1) == record.content[block]
        record.reached["contract: hit that ends inside a block"] += 1
        if isinstance(rule, Mamba):
            record.reached["contract: S7 of a state inside a block, left to the shadow memory"] += 1
            return True
        return record.begins_with(block, request, group, end)

    def check_used(self, move: Move) -> None:
        """S7 of the allocation that uses a hit: the tables begin with it, and all states in it are computed."""
        record, request = self.record, move.request
        assert request is not None
        length = request.hit[0] if request.hit else 0
        for group in self.groups:
            rule, table, row = record.rules[group], move.after.tables[group].get(move.name, []), hit_row(move, group)
            for entry, block in enumerate(row):
                found = table[entry] if entry < len(table) else None
                inside = (entry + 1) * rule.b > length  # the request needs a copy, because it will write there
                if found not in (NULL, block) and not (inside and found in move.taken):
                    what = f"the table {table} does not begin with {list(row)}"
                    raise Break("S7", f"{move.name}, group {group}: {what}", "another table")
                if not isinstance(rule, Mamba) or NULL in (block, found):
                    continue
                if record.filled_in_step[block] == record.scheduler_step:
                    text = f"{move.name}, group {group}: continues from block {block}"
                    raise Break("S7", f"{text}, whose state is computed in this very scheduler step", "same step")

    # S14.

    def check_longest(self, move: Move) -> None:
        """S14 of a lookup's answer, after `check_real`: no longer hit is one by the definition (`model.lookup`)."""
        record, request = self.record, move.request
        assert request is not None
        if not (record.shape.caching and self.groups) or request.submit.skip_lookup or request.hit is None:
            return
        length = request.hit[0]
        self._check_replay(request, length)
        if record.shows("labels") and not record.violated:
            longer_ones = range(self.limit(request), length, -self.alignment)
            labels = move.before.labels if longer_ones else ()
            registered = [block for block, label in enumerate(labels) if label is not None]
            content, drafts = record.content, registered if self.gives_up else []
            every = {content[block] for block in registered}
            same = {content[block] for block in drafts if self._has_same_next_token(block, request)}
            for longer in longer_ones:
                if self._is_hit(request, longer, every, same):
                    what = f"hit of {length} tokens, but {longer} are registered in every group"
                    self._lost(request, what, longer, replayed=False)
                    if record.violated:
                        return
            record.reached["contract: S14 checked"] += 1

    def limit(self, request: Tracked) -> int:
        """The longest hit, in tokens, that the request can have. Names may look further ahead than a block."""
        record, known = self.record, len(request.contents)
        most = lookup.replay_boundary(record.rules, self.alignment, known)
        return min(most, down(min(self._most(request), known - names_ahead(record.shape)), self.alignment))

    def _is_hit(self, request: Tracked, length: int, every: Collection[int], same: Collection[int]) -> bool:
        """True if every group has registered what a hit of so many tokens needs. `every`: the contents that are
        registered; `same`: those with the request's next token behind them.

        What a drafting layer stores for a position depends on the next token. So an engine asks for the block behind a
        hit, or its hashes cover one more token; then it does not find a block with another next token.
        """
        for group in self._asked(request):
            rule = self.record.rules[group]
            for entry in range(rule.first(length), rule.end(length)):
                inside = group in self.gives_up and (entry + 1) * rule.b <= length
                if self.record.key(request, group, entry) not in (same if inside else every):
                    return False
        return True

    def _has_same_next_token(self, block: int, request: Tracked) -> bool:
        """True if the token after the block's content is the request's token at that position."""
        begun, known = self.record.begun[block], request.contents
        if begun is None or begun.end >= min(len(begun.contents), len(known)):
            return False
        return begun.contents[begun.end] == known[begun.end]

    def _check_replay(self, request: Tracked, length: int) -> None:
        """S14: a replay of a prompt that was computed completely hits up to the replay boundary, if nothing is
        evicted."""
        record = self.record
        replay = record.replays.get(request.contents[-1])
        boundary = self.limit(request)
        if replay is None or boundary <= 0:
            return
        if self._most(request) < len(request.contents) - 1 and record.shape.retention_interval is not None:
            return  # what is kept is what a whole replay needs
        if not record.shows("labels") and replay.allocations != record.allocations:
            return  # an eviction would not be seen
        for group in self._asked(request):
            rule, entries = record.rules[group], replay.entries[group]
            for entry in range(rule.first(boundary), rule.end(boundary)):
                block, filling = entries[entry] if entry < len(entries) else (NULL, 0)
                if block == NULL or record.fillings[block] != filling or record.may_be_evicted(block):
                    return
        record.reached["contract: replay of a prompt that is still there"] += 1
        record.reached["contract: S14 checked"] += not record.shows("labels")
        if length < boundary:
            known = len(request.contents)
            what = f"hit of {length} tokens, but the same prompt was computed up to {known}, and the blocks up to"
            self._lost(request, f"{what} the replay boundary {boundary} still hold it", boundary, replayed=True)

    def _lost(self, request: Tracked, what: str, length: int, *, replayed: bool) -> None:
        text = f"{request.submit.request}: {what} (limit {len(request.contents) - 1}, alignment {self.alignment})"
        kind = "less than was computed" if replayed else "less than is registered"
        self.record.break_unless_known(self._excuses(request, length, replayed), "S14", text, kind)

    def _excuses(self, request: Tracked, length: int, replayed: bool) -> Iterator[str]:
        """The known losses that explain why a lookup misses a hit of `length` tokens."""
        shape, rules = self.record.shape, self.record.rules
        windows = [group for group in self.groups if rules[group].windowed]
        eagle_windows = [group for group in windows if group in self.gives_up]
        ahead = SEVERAL_NAMES in self.record.hides  # then no block behind a hit is asked for
        if any(rules[group].w == 1 for group in windows if ahead or group not in self.gives_up):
            yield "window-of-one"
        if request.asked is not None and request.asked.for_connector and len(self._asked(request)) < len(self.groups):
            yield "states-ahead-of-attention"
        if any(length + rules[group].behind >= len(request.contents) for group in self.gives_up):
            yield "eagle-last-block"
        if any(rules[group].b < self.alignment and not rules[group].first(length) for group in eagle_windows):
            yield "eagle-cut-twice"
        if eagle_windows and len({shape.groups[group].spec for group in self.gives_up}) > 1:
            yield "eagle-asked-in-turn"
        if replayed and len(rules) == 1 and windows and length % shape.scheduler_block_size:
            yield "window-kept-for-scheduler"
        if replayed and eagle_windows and shape.retention_interval is not None:
            yield "boundary-without-eagle"
