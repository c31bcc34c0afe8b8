"""How many blocks a request needs (at most, at least, and as the admission gate counts), and in how many steps it ends.

All of this follows from the shape alone, so it holds for any core. Blocks are counted over all groups together, since
all groups take them from one pool.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from ....model import arith
from ....model.attention import Chunked, Cross, Mamba, Rule, Sliding, rule_for
from ....model.ops import Shape

ENCODER_TOKENS = 5
"""Tokens of the encoder's output for every request of a core with cross attention."""
DRAFTS = 2
"""Draft tokens per step with eagle, unless Mamba layers prescribe another number."""


@dataclass(frozen=True)
class Bounds:
    """The bounds for requests on a core of one shape. Lengths in tokens, results in blocks unless said otherwise."""

    shape: Shape

    @cached_property
    def rules(self) -> list[Rule]:
        """The rule of every group."""
        return [rule_for(group, self.shape) for group in self.shape.groups]

    @property
    def drafts(self) -> int:
        """Draft tokens per step: as many as every Mamba layer has blocks for; without such layers `DRAFTS` with eagle,
        else 0."""
        states = [rule.p for rule in self.rules if isinstance(rule, Mamba)]
        eagle = self.shape.eagle or any(group.eagle for group in self.shape.groups)
        return min(states, default=DRAFTS if eagle else 0)

    @property
    def encoder_tokens(self) -> int:
        """Tokens of the encoder's output, 0 without cross attention."""
        return ENCODER_TOKENS if any(isinstance(rule, Cross) for rule in self.rules) else 0

    @property
    def usable(self) -> int:
        """Blocks of the pool that requests can hold: all but the null block and the sinks (vllm-project/vllm#35541,
        vllm-project/vllm#47272)."""
        sinks = (rule.group.sink_len // rule.b for rule in self.rules if rule.group.kind == "sink")
        return self.shape.num_blocks - 1 - sum(sinks)

    @property
    def unit(self) -> int:
        """In tokens: prompts are split at multiples of it, since running states are registered at ends of blocks."""
        states = [rule.b for rule in self.rules if isinstance(rule, Mamba) and rule.align and self.shape.caching]
        unit = max(states, default=1)
        return unit if unit <= self.shape.max_num_batched_tokens else 1

    def most(self, tokens: int, drafts: int | None = None) -> int:
        """The most blocks that a request holds at once while it computes `tokens` tokens, whatever its steps and hits.

        Each step has `drafts` drafts (by default `self.drafts`) and as many lookahead tokens. The bounds of windows and
        chunks are proved by T4 and T6, that of `align` mode by T15; with drafts a release can hold the whole table.
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
        """Blocks that the admission gate counts for a request of `tokens` tokens without a hit (core.md §10)."""
        return sum(self._counted(rule, tokens) for rule in self.rules)

    def _counted(self, rule: Rule, tokens: int) -> int:
        if isinstance(rule, Mamba) and rule.align:
            return 1 + rule.p
        cap = rule.cap()
        required = rule.required(self.encoder_tokens if isinstance(rule, Cross) else tokens)
        return required if cap is None else min(required, cap)

    def least(self, tokens: int) -> int:
        """Blocks that a request must hold at some moment to compute `tokens` tokens, whatever its steps (S6).

        These are the blocks that the query at some position reads, including its own block.
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
        """True if the pool holds the most blocks that the request can need: the start-up check for one request. The
        last sampled token is never computed."""
        return self.most(prompt + outputs - 1) <= self.usable

    def hopeless(self, prompt: int) -> bool:
        """True if a prompt of this length can never be computed, because the pool is smaller than the least it
        needs."""
        return self.least(prompt) > self.usable

    def steps(self, prompt: int, outputs: int) -> int:
        """Number of steps after which a request has finished, once it is the oldest, if it fits alone.

        The oldest is never preempted and has the whole token budget, so each step computes a chunk or samples a token.
        There is one more step because a prompt is split at its last multiple of `unit`.
        """
        chunk = arith.down(self.shape.max_num_batched_tokens, self.unit)
        return arith.cdiv(prompt + outputs, chunk) + 1 + outputs
