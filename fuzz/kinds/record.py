"""What the harness has to know of a kind of attention, and of a spec class of layers: one record each.

What a core must do for a group of the kind is the model's rule (`model.attention`). Here stands how such groups are
drawn and said, and what releases call them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...model.ops import Group, Kind
from .draw import Draw
from .style import Spec, Style

Fields: TypeAlias = Mapping[str, object]


@dataclass(frozen=True)
class AttentionKind:
    """One kind of groups."""

    name: Kind
    words: str
    """What such a group keeps, in a few words; a field of the group stands in braces."""
    drawn: Callable[[Draw, int, int], Group]
    """Draws a group with blocks of so many tokens; its window or chunk is at most so wide as the last number says, if
    no more blocks are wider."""
    usual: Callable[[int, int], Group]
    """A group with blocks of so many tokens; its window or chunk, if it has one, is as long as the last number says."""
    spec: str
    """Class of its specs."""
    spec_fields: Callable[[Group], Fields] = lambda group: {}
    """Fields of the spec that other kinds do not have."""
    own_fields: Callable[[Group], Fields] | None = None
    """All fields of a spec that is none of attention, but for the size of a block."""
    needs: Mapping[str, int] = field(default_factory=dict)
    """Fields of a group that other kinds do not read, each with the least value that a trace may have: 0 where cores
    refuse what is too small."""
    latent: bool = False
    """Whether a block has one vector for each token instead of a key and a value."""
    reach: int = 1
    """Tokens of a window or a chunk in the models that people serve."""
    explored: Callable[[int], Group] | None = None
    """The group of an explored scope, with blocks of so many tokens; None: states of such a core cannot be made."""


@dataclass(frozen=True)
class LayerClass:
    """One class of specs, as configurations have them."""

    name: str
    drawn: Callable[[Draw, Style], Spec]
    """Draws a spec in the style of a configuration."""
    words: str
    """What such layers keep, in a word or two."""
    least: Mapping[str, object]
    """Fields of the smallest spec of the class."""
    own: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """Values of fields that not all classes of attention have; of a class that is none, of all its fields."""
    required: tuple[str, ...] = ()
    """Fields that somebody who plans has to give."""
    optional: tuple[str, ...] = ()
    """Fields that may be given besides."""
    value_heads: bool = False
    """Whether a value is as long as a key unless `head_size_v` says otherwise."""
    reach: str = ""
    """Field that says how many tokens a query reads, in specs and in models."""
    layer_type: str = ""
    """What a model's `layer_types` call a layer of the class."""
