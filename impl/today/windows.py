"""Specs of sliding windows before which more is kept than is read."""

from dataclasses import KW_ONLY, dataclass

from ..specs.interface import SlidingWindowMLASpec, SlidingWindowSpec


@dataclass(frozen=True)
class TodayWindowSpec(SlidingWindowSpec):
    """As before, and how many tokens before the window are kept: as many as a chain of draft models prefills again,
    which read windows that begin earlier."""

    _: KW_ONLY
    extra_retained_tokens: int = 0

    def max_admission_blocks_per_request(
        self, max_num_batched_tokens: int, max_model_len: int, num_lookahead_tokens: int = 0
    ) -> int:
        """As before, with these."""
        kept = num_lookahead_tokens + self.extra_retained_tokens
        return SlidingWindowSpec.max_admission_blocks_per_request(self, max_num_batched_tokens, max_model_len, kept)


@dataclass(frozen=True)
class TodayWindowMLASpec(SlidingWindowMLASpec, TodayWindowSpec):
    """The same over compressed vectors."""
