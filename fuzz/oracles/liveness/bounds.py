"""How many blocks a request needs (at most, at least, and on the way ahead of it), and in how many steps it ends.

All of this follows from the shape and the rule: from what a query reads, and from the most blocks that the gate counts
for a request (core.md §10, T16). What a target is known to do otherwise (its `loses`) is taken into account where it
changes how much a request may hold. Blocks are counted over all groups together, since all take them from one pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ....model import arith
from ....model.attention import Mamba, Rule, most_states
from ....model.ops import Shape
from ...kinds.compressed import rules_with

ENCODER_TOKENS = 5
"""Tokens of the encoder's output for every request of a core with cross attention."""
DRAFTS = 2
"""Draft tokens per step with eagle, unless Mamba layers prescribe another number."""


@dataclass(frozen=True)
class Bounds:
    """The bounds for requests on a core of one shape. Lengths in tokens, results in blocks unless said otherwise."""

    shape: Shape
    losses: frozenset[str] = frozenset()
    """What the target is known to do otherwise (`declarations.LOSES`)."""
    no_drafts: bool = False
    """True for a target without speculative decoding: no step of its scheduler has drafts or room for them."""

    designs: frozenset[str] = frozenset()
    """What the target does otherwise than most (`declarations.DESIGNS`)."""

    @cached_property
    def rules(self) -> list[Rule]:
        """The rule of every group."""
        return rules_with(self.shape, self.designs)

    @cached_property
    def drafts(self) -> int:
        """Draft tokens per step: as many as every Mamba layer has blocks for (`model/legal.py`); without such layers
        `DRAFTS` with eagle, else 0. None if the target lacks them."""
        if self.no_drafts:
            return 0
        states = [rule.p for rule in self.rules if isinstance(rule, Mamba)]
        eagle = self.shape.eagle or any(group.eagle for group in self.shape.groups)
        return min(states, default=DRAFTS if eagle else 0)

    @cached_property
    def encoder_tokens(self) -> int:
        """Tokens of the encoder's output, 0 without cross attention."""
        return ENCODER_TOKENS if any(rule.by_encoder for rule in self.rules) else 0

    @property
    def usable(self) -> int:
        """Blocks of the pool that requests can hold: all but the null block and the sinks (vllm-project/vllm#35541,
        vllm-project/vllm#47272)."""
        sinks = (rule.group.sink_len // rule.b for rule in self.rules if rule.sinks)
        return self.shape.num_blocks - 1 - sum(sinks)

    @property
    def unit(self) -> int:
        """In tokens: prompts are split at multiples of it, since running states are registered at ends of blocks."""
        states = [rule.b for rule in self.rules if isinstance(rule, Mamba) and rule.align and self.shape.caching]
        unit = max(states, default=1)
        return unit if unit <= self.shape.max_num_batched_tokens else 1

    def most(self, tokens: int) -> int:
        """The most blocks that a request holds at once while it computes `tokens` tokens, whatever its steps and hits.

        This is also what the gate counts at most. Each step has `self.drafts` drafts and as many lookahead tokens.
        """
        end = min(tokens + 2 * self.drafts, self.shape.max_model_len) + self.room_ahead
        return sum(self._most(rule, end) for rule in self.rules)

    @property
    def room_ahead(self) -> int:
        """Tokens beyond those asked for of which a target takes room that is known for it."""
        if "room-ahead" not in self.losses:
            return 0
        largest = max(rule.b for rule in self.rules)
        return arith.up(self.shape.max_num_batched_tokens, largest) + largest + 1

    def _most(self, rule: Rule, end: int) -> int:
        """The most blocks of one group up to token `end` (T4, T6, T15)."""
        if isinstance(rule, Mamba) and rule.align:
            states = most_states(rule, end)
            return max(states, rule.required(end)) if rule.p and "mamba-states-pile-up" in self.losses else states
        cap, required = rule.cap(self.drafts + self.room_ahead), rule.required(self._length(rule, end))
        return required if cap is None else min(required, cap)

    def _length(self, rule: Rule, tokens: int) -> int:
        return self.encoder_tokens if rule.by_encoder else tokens

    def ahead(self, start: int, known: int) -> int:
        """The most blocks that a request can come to hold that is admitted behind `start` tokens, until its `known`
        tokens are computed. The gate counts no less (T16.hit, T16.chunked, T16.lookahead, T16.states)."""
        whole = min(known + self.drafts, self.shape.max_model_len)
        return sum(
            most_states(rule, whole)
            if isinstance(rule, Mamba) and rule.align
            else max(self._held(rule, position, whole) for position in self._decisive([rule], start, known))
            for rule in self.rules
        )

    @staticmethod
    def _decisive(rules: Sequence[Rule], start: int, end: int) -> range:
        """Positions among which is one that needs the most blocks: where nothing is skipped, the last one does."""
        return range(start, end) if any(not rule.is_full for rule in rules) else range(end - 1, end)

    def _held(self, rule: Rule, position: int, whole: int) -> int:
        """Blocks for the longest step from a position: up to its last token and lookahead, from the first one read."""
        end = min(position + self.shape.max_num_batched_tokens + self.drafts, whole)
        return rule.required(self._length(rule, end)) - max(0, rule.skipped(position)) // rule.b

    def least(self, tokens: int) -> int:
        """Blocks that a request must hold at some moment to compute `tokens` tokens, whatever its steps (S6).

        These are the blocks that the query at some position reads, including its own block.
        """
        rules = self.rules
        return max(sum(self._read(rule, position) for rule in rules) for position in self._decisive(rules, 0, tokens))

    def _read(self, rule: Rule, position: int) -> int:
        if isinstance(rule, Mamba):
            return 1
        if rule.by_encoder:
            return rule.required(self.encoder_tokens)
        return rule.required(position + 1) - rule.skipped(position) // rule.b

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
