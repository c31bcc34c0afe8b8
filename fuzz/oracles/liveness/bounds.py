"""How many blocks a request takes: at most, at least, and as the admission gate counts; and how many steps a script.

All of it is arithmetic on the shape, so it can be said of any core before the first operation. Blocks are those of all
groups together, since they draw from one pool.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from ....model import arith
from ....model.attention import Chunked, Cross, Mamba, Rule, Sliding, rule_for
from ....model.ops import Shape

ENCODER_TOKENS = 5
"""Tokens of the encoder's output for every request of a core with cross attention."""
DRAFTS = 2
"""Tokens that a drafter (eagle) proposes in a step, where no layers of running states set another number."""


@dataclass(frozen=True)
class Bounds:
    """What holds for the requests of one shape."""

    shape: Shape

    @cached_property
    def rules(self) -> list[Rule]:
        """The rule of every group."""
        return [rule_for(group, self.shape) for group in self.shape.groups]

    @property
    def drafts(self) -> int:
        """Tokens proposed in a step: as many as all layers of running states set blocks aside for, else `DRAFTS` with
        eagle and none without."""
        states = [rule.p for rule in self.rules if isinstance(rule, Mamba)]
        eagle = self.shape.eagle or any(group.eagle for group in self.shape.groups)
        return min(states, default=DRAFTS if eagle else 0)

    @property
    def encoder_tokens(self) -> int:
        """Tokens of the encoder's output, 0 without cross attention."""
        return ENCODER_TOKENS if any(isinstance(rule, Cross) for rule in self.rules) else 0

    @property
    def usable(self) -> int:
        """Blocks of the pool that requests can hold: not the null block, not the sinks (reports 35541, 47272)."""
        sinks = (rule.group.sink_len // rule.b for rule in self.rules if rule.group.kind == "sink")
        return self.shape.num_blocks - 1 - sum(sinks)

    @property
    def unit(self) -> int:
        """Prompts are split at multiples of so many tokens: running states are registered at the ends of blocks."""
        states = [rule.b for rule in self.rules if isinstance(rule, Mamba) and rule.align and self.shape.caching]
        unit = max(states, default=1)
        return unit if unit <= self.shape.max_num_batched_tokens else 1

    def most(self, tokens: int, drafts: int | None = None) -> int:
        """Blocks that a request which computes `tokens` tokens never holds more of, whatever its steps and hits.

        With `drafts` drafts and as many lookahead tokens, by default those of the shape. For windows and chunks what
        T4 and T6 prove, for `align` mode T15; where that is refuted (T15.leak) the whole table.
        """
        ahead = 2 * (self.drafts if drafts is None else drafts)
        length = min(tokens + ahead, self.shape.max_model_len)
        return sum(self._most(rule, length, ahead) for rule in self.rules)

    def _most(self, rule: Rule, length: int, ahead: int) -> int:
        if isinstance(rule, Mamba) and rule.align:
            return max(2 + rule.p, rule.required(length)) if rule.p else 2
        if isinstance(rule, Sliding | Chunked):
            batched = self.shape.max_num_batched_tokens + ahead
            cap = rule_for(rule.group, replace(self.shape, max_num_batched_tokens=batched)).cap()
            return min(rule.required(length), cap if cap is not None else length)
        return rule.required(self.encoder_tokens if isinstance(rule, Cross) else length)

    def counted(self, tokens: int) -> int:
        """Blocks that the admission gate counts for a request of so many tokens without a hit (core.md §10)."""
        return sum(self._counted(rule, tokens) for rule in self.rules)

    def _counted(self, rule: Rule, tokens: int) -> int:
        if isinstance(rule, Mamba) and rule.align:
            return 1 + rule.p
        cap = rule.cap()
        required = rule.required(self.encoder_tokens if isinstance(rule, Cross) else tokens)
        return required if cap is None else min(required, cap)

    def least(self, tokens: int) -> int:
        """Blocks that a request must hold at some moment to compute `tokens` tokens, in whatever steps (S6).

        Those that the query at some position reads, its own included: no core can do with fewer.
        """
        rules = self.rules
        return max(sum(self._read(rule, position) for rule in rules) for position in range(tokens))

    def _read(self, rule: Rule, position: int) -> int:
        if isinstance(rule, Mamba):
            return 1
        if isinstance(rule, Cross):
            return rule.required(self.encoder_tokens)
        return position // rule.b + 1 - rule.skipped(position) // rule.b

    def fits_alone(self, prompt: int, outputs: int) -> bool:
        """The start-up check for one request: does the pool hold the most that it can need? The last token that it
        samples is never computed."""
        return self.most(prompt + outputs - 1) <= self.usable

    def hopeless(self, prompt: int) -> bool:
        """Can a request with such a prompt never be computed, since the pool is too small for the least it needs?"""
        return self.least(prompt) > self.usable

    def steps(self, prompt: int, outputs: int) -> int:
        """Steps in which a request finishes once it is the oldest and fits alone.

        The oldest is never preempted and has the whole token budget, so each step computes a chunk or samples a token;
        one more step since a prompt is split at its last multiple of `unit`.
        """
        chunk = arith.down(self.shape.max_num_batched_tokens, self.unit)
        return arith.cdiv(prompt + outputs, chunk) + 1 + outputs
