"""States that a step leaves inside it: a long step of a prompt passes places at which a hit may end, and some workers
write the state at the last of them into the entry before that of the step's own last state."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..hashing.extra_keys import CacheableRequest
from ..specs.base import MambaSpec, cdiv
from .states import MambaToday


@dataclass(frozen=True)
class TodayMambaSpec(MambaSpec):
    """As before, and whether workers leave a checkpoint inside a step."""

    num_prefill_checkpoint_blocks: int = 0
    """1 if they do."""
    prefill_checkpoint_alignment: int | None = None
    """Checkpoints lie on a grid of so many tokens from the start of their step."""


class CheckpointManager(MambaToday):
    """States in mode align whose workers leave checkpoints."""

    leaves_one_state = False

    def __post_init__(self, *given: object, **named: object) -> None:
        super().__post_init__(*given, **named)
        self.grid = getattr(self.kv_cache_spec, "prefill_checkpoint_alignment", None) or 1
        self.checkpoint_unit = self.scheduler_block_size
        """Checkpoints stand at multiples of so many tokens; the coordinator of several groups says which."""
        self.drafts_read_on = False
        """Whether draft models need what is behind a hit, since names do not look ahead."""
        self.retention_interval: int | None = None
        self.only_ends = False
        """Whether only that of the step which ends a prompt gets a block."""
        self._asked = (-1, -1)
        self._answer: tuple[int, int] | None = None
        """What `left` said last: every part of a step asks."""
        self._step: object = None
        self._checkpoint: tuple[int, int] | None = None
        """The checkpoint of this step, and below what entries it has left: three calls ask for them in a row."""
        self._entries: Sequence[int] = ()
        self.prompt_ends = 0
        """Of the request whose step is allocated now: where such a step ends at least."""

    def left(self, start: int, end: int) -> tuple[int, int] | None:
        """The entry of the checkpoint of a step `start .. end - 1`, and how many tokens its state is of; None if there
        is none. It lies a hash block behind the start at least, and between the entries of the step's first and last
        states."""
        if self._asked != (start, end):
            self._asked, self._answer = (start, end), self._left(start, end)
        return self._answer

    def _left(self, start: int, end: int) -> tuple[int, int] | None:
        if not self.enable_caching or start % self.unit:
            return None
        at, entry = self._resumed(end), (end - 1) // self.block_size - 1
        behind = entry > (start - 1) // self.block_size and at >= start + self.unit
        return (entry, at) if behind and (at - start) % self.grid == 0 else None

    def _resumed(self, num_tokens: int) -> int:
        """Where a request of so many tokens can be resumed."""
        unit = self.checkpoint_unit
        behind = unit if self.drafts_read_on else max(1, self.block_pool.num_hash_lookahead_tokens)
        return (num_tokens - behind) // unit * unit

    def wanted_of(self, start: int, end: int, prompt_ends: int) -> tuple[int, int] | None:
        """The same of one that gets a block."""
        return None if self.only_ends and end < prompt_ends else self.left(start, end)

    def first_left(self, start: int, end: int, running: int) -> int:
        """That of its checkpoint, right before the last one, if it leaves any."""
        wanted = self.wanted_of(start, end, self.prompt_ends)
        return running if wanted is None else wanted[0]

    def note_request(self, request: CacheableRequest) -> None:
        """The next calls are about a step of this request."""
        self.prompt_ends = max(request.num_prompt_tokens, request.num_tokens - 1)

    def _most_held(self, num_tokens: int) -> int:
        """One more."""
        drafts, size = self.num_speculative_blocks, self.block_size
        reach = cdiv(max(1 + drafts, 2 * drafts - 1), size) + 1
        return drafts + min(max(1, cdiv(num_tokens, size)), 1 + reach)

    def _to_arrange(
        self, request_id: str, table: Sequence[object], num_computed_tokens: int, num_tokens: int
    ) -> tuple[list[int], list[int]]:
        """As before; the entry of a checkpoint gets a block, too, or keeps its own."""
        wanted = self.wanted_of(num_computed_tokens, num_tokens, self.prompt_ends)
        if wanted is None:
            return super()._to_arrange(request_id, table, num_computed_tokens, num_tokens)  # type: ignore[arg-type]
        null, (entry, _), had = self._null_block, wanted, len(table)
        running = entry + 1
        end = running + 1 + self.num_speculative_blocks
        empty = [i for i in range(entry, end) if i >= had or table[i] is null]
        stays, first = (num_computed_tokens - 1) // self.block_size, self.num_leading_nulls.get(request_id, 0)
        held = [i for i in range(first, had) if table[i] is not null] if empty else []
        return empty, [i for i in held if i != stays and not entry <= i < end]

    def _look_at_step(self, request_id: str) -> None:
        """Find the checkpoint of the last step of a request, which had no drafts, and what entries it has left."""
        step, self._checkpoint = self.steps.get(request_id), None
        self._step = step
        if step is not None:
            if step[2] == step[3] > step[1]:
                self._checkpoint = self.left(step[1], step[3])
            others = MambaToday.entries_of_step(self, request_id)
            self._entries = others if self._checkpoint is None else sorted({self._checkpoint[0], *others})

    def stands(self, request_id: str, i: int) -> bool:
        """As before; a checkpoint stands where it was left."""
        if self.steps.get(request_id) is not self._step:
            self._look_at_step(request_id)
        written = self._checkpoint
        if written is not None and written[0] == i:
            return written[1] == (i + 1) * self.block_size
        return MambaToday.stands(self, request_id, i)

    def entries_of_step(self, request_id: str) -> Sequence[int]:
        """As before, and the entry of the checkpoint."""
        if self.steps[request_id] is not self._step:
            self._look_at_step(request_id)
        return self._entries

    def name_end(self, request: CacheableRequest, num_tokens: int, end: int, at_junction: bool) -> None:
        """The state of a checkpoint is named where a hit can resume: at the end of a prompt, at a junction, and at the
        end of a block that is kept. Else its block keeps no name. A step without one names as before."""
        request_id, pool = request.request_id, self.block_pool
        if self.steps.get(request_id) is not self._step:
            self._look_at_step(request_id)
        written = self._checkpoint
        if written is not None and self.only_ends:
            prompt_ends = max(request.num_prompt_tokens, request.num_tokens - 1)
            written = written if self.steps[request_id][3] >= prompt_ends else None
        if written is None:
            MambaToday.name_end(self, request, num_tokens, end, at_junction)
            return
        entry, at = written
        block, interval = self.req_to_blocks[request_id][entry], self.retention_interval
        kept = at % self.block_size == 0 and (interval is None or (interval > 0 and at % interval == 0))
        last = self._resumed(request.num_prompt_tokens)
        if block is self._null_block:
            return
        if not kept and at not in (last, getattr(request, "shared_prefix_boundary", 0)):
            if block.content is not None or pool.metrics_collector is not None:
                pool.evict_blocks([block.block_id])
        elif pool.covers(block, (entry + 1) * self.block_size) != at:
            pool.unname(block)
            self.give_name(request, at, entry, block)
            self.cached_blocks_this_step.add(request.block_hashes[at // self.unit - 1])


def with_checkpoints(kind: type[MambaToday], spec: object) -> type[MambaToday]:
    """The manager of states of this spec."""
    leaves = getattr(spec, "num_prefill_checkpoint_blocks", 0) and getattr(spec, "mamba_cache_mode", "") == "align"
    return CheckpointManager if leaves and kind is MambaToday else kind
