"""The kinds of attention that theorems speak of: the model's rule, and what cores with vLLM's API call theirs."""

from collections.abc import Mapping
from typing import NamedTuple

from ...model.attention import Chunked, Full, Mamba, Rule, Sliding
from ...model.ops import Kind


class ProvedKind(NamedTuple):
    """One kind, and how its size is called: a window, a chunk, or the blocks for states of drafts."""

    name: Kind
    rule: type[Rule]
    manager: str
    spec: str
    letter: str = ""
    """Of its size in the model; none if it has none."""
    field: str = ""
    """Of its size in specs and managers."""
    reads: bool = True
    """Whether what a query reads depends on the size."""


KINDS: Mapping[str, ProvedKind] = {
    kind.name: kind
    for kind in (
        ProvedKind("full", Full, "FullAttentionManager", "FullAttentionSpec"),
        ProvedKind("sliding", Sliding, "SlidingWindowManager", "SlidingWindowSpec", "w", "sliding_window"),
        ProvedKind(
            *("chunked", Chunked, "ChunkedLocalAttentionManager", "ChunkedLocalAttentionSpec"),
            *("k", "attention_chunk_size"),
        ),
        ProvedKind("mamba", Mamba, "MambaManager", "MambaSpec", "p", "num_speculative_blocks", reads=False),
    )
}
STATES = "mamba"
"""States in the modes none and all."""
ALIGN = "align"
"""States in mode align; their kind by itself stands for the modes none and all."""


def kind_of(name: str) -> ProvedKind:
    """The kind of this name, which may be that of a mode."""
    return KINDS["mamba" if name == ALIGN else name]
