"""Layers and groups of a configuration as vLLM 0.23.0 has them: its rules in place of those the chapter wants.

Each method is one rule, replaced by what the release was seen to do, under the id that the last section of the chapter
"Specs and configuration arithmetic" gives to the difference.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, TypeVar

from ....model import arith
from ....model.answers import Json, Rules
from ....model.attention import CoreError, demand
from ....model.grouping import LayerGroup
from ....model.layers import FULL_FAMILY, MLA_FAMILY, REGISTERED, WINDOWS, Config, Kind, Layer, Layers

T = TypeVar("T")


def outcome(work: Callable[[], T]) -> T | str:
    """What the work returns, or the name of the exception that it ends with."""
    try:
        return work()
    except CoreError as error:
        return str(error)
    except (ZeroDivisionError, ValueError) as error:
        return type(error).__name__


def shared_objects(inputs: Mapping[str, Any]) -> dict[str, object]:
    """Layer name -> which spec object it has, where the layers of a worker share them."""
    objects: dict[str, object] = {}
    for i, worker in enumerate([inputs.get("layers", ()), *inputs.get("workers", ())]):
        for name, spec in worker:
            objects.setdefault(name, (i, spec))
    return objects if inputs.get("shared_objects") else {}


class ReferenceGroups(Rules):
    """Layers and groups as vLLM 0.23.0 has them, and a record of where that is not what the chapter wants."""

    def __init__(self) -> None:
        self.fired: set[str] = set()
        """Ids of the deviations that made a difference since the set was last cleared."""
        self._objects: Mapping[str, object] = {}
        """Layer name -> which spec object it has, where layers share them."""

    def answer(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The answer to a question. Where the chapter's is the same, nothing counts as fired."""
        before = set(self.fired)
        answer = self.released(op, inputs)
        if self.fired != before and answer == Rules().answer(op, inputs):
            self.fired &= before
        return answer

    def released(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The release's answer; some are crashes over a number."""
        self._objects = shared_objects(inputs)
        try:
            return super().answer(op, inputs)
        except ZeroDivisionError as error:
            return {"raises": type(error).__name__}

    def deviate(self, name: str, wanted: Callable[[], T], actual: Callable[[], T]) -> T:
        """What the release does, noted under this id if the chapter wants something else."""
        before = set(self.fired)
        expected = outcome(wanted)
        self.fired &= before  # what happens on the way to the expected outcome does not happen in the release
        self.note(name, outcome(actual) != expected)
        return actual()

    def note(self, name: str, deviates: bool) -> None:
        """Keep this id if it deviates."""
        if deviates:
            self.fired.add(name)

    def construct(self, x: Layer) -> Layer:
        """Nothing is refused; the alignment knows nothing of scales and of a given padding."""
        self.note("S-07", len(x.shapes) != len(x.dtypes))
        self.note("S-10", x.block_size < 1 or x.compress_ratio < 1 or x.block_size % x.compress_ratio > 0)
        if x.type in FULL_FAMILY | {Kind.WINDOW} and x.head_size_v is None:
            x = replace(x, head_size_v=x.head_size)
        if x.alignment is None:
            return x
        real, need = self.real_page(x), max(self.needed_page(x), x.page_size_padded or 0)
        padded = arith.up(real, x.alignment)
        made = x if padded == real else replace(x, page_size_padded=padded)
        self.note("S-06", outcome(lambda: self.page(made)) != arith.up(need, x.alignment))
        return made

    def page(self, x: Layer) -> int:
        """The padding is all that counts, whatever the alignment."""
        return super().page(x if x.alignment is None else replace(x, alignment=None))

    def resize(self, x: Layer, block_size: int) -> Layer:
        """A padding stays, even one that an alignment made, and so do the members of a uniform type."""
        self.note("S-12", any(member.block_size != block_size for member in x.members))
        return self.construct(replace(x, block_size=block_size))

    def nvfp4_width(self, width: int) -> int:
        """Rounded down."""
        wanted = super().nvfp4_width
        return self.deviate("S-11", lambda: wanted(width), lambda: width // 2 + width // 16)

    def fits_parallel(self, config: Config, x: Layer) -> bool:
        """Only a window under decode context parallelism is refused."""
        refused = x.type in WINDOWS and config.decode_context_parallel_size > 1
        self.note("S-15", config.parallel > 1 and not refused)
        return not refused

    def cap_chunked(self, chunk: int, b: int, max_batched: int, max_len: int) -> int:
        """Blocks as if every chunk began with a block."""
        wanted = super().cap_chunked
        actual = arith.cdiv(min(chunk + max_batched, max_len), b)
        return self.deviate("S-13", lambda: wanted(chunk, b, max_batched, max_len), lambda: actual)

    def merge(self, specs: Sequence[Layer]) -> Layer:
        """Classes mix, and only some fields are compared and kept."""
        wanted = super().merge
        if len({x.type for x in specs}) > 1 or len({x.sink_len for x in specs}) > 1:
            name = "S-04"
        elif len(set(specs)) == 1:
            name = "S-03"
        else:
            name = "S-01" if specs[0].type in MLA_FAMILY | {Kind.WINDOW_MLA} else "S-02"
        return self.deviate(name, lambda: wanted(specs), lambda: self.merge_as_released(specs))

    def merge_as_released(self, specs: Sequence[Layer]) -> Layer:
        """By the class of the first spec."""
        first = specs[0]
        if first.type in MLA_FAMILY | {Kind.WINDOW_MLA}:
            return self.merge_latent(specs)
        if first.type not in FULL_FAMILY:
            return super().merge(specs)
        demand(all(x.type in FULL_FAMILY - MLA_FAMILY for x in specs))
        alike = [replace(x, type=first.type, sink_len=None, tq_slot_size=0, head_size_v=None) for x in specs]
        merged = super().merge(alike)
        if first.type == Kind.TQ:
            for x in specs:
                demand(x.type == Kind.TQ, "AttributeError")
                demand(x.tq_slot_size == first.tq_slot_size)
        return replace(first, sliding_window=merged.sliding_window, attention_chunk_size=merged.attention_chunk_size)

    def merge_latent(self, specs: Sequence[Layer]) -> Layer:
        """The layout is compared; geometry is the first one's, and the rest is lost."""
        first = specs[0]
        windowed = first.type == Kind.WINDOW_MLA
        demand(all((x.type == Kind.WINDOW_MLA if windowed else x.type in MLA_FAMILY) for x in specs))
        layouts = {(x.cache_dtype_str, x.compress_ratio, x.model_version) for x in specs}
        demand(len(layouts) == 1 and (not windowed or len({x.sliding_window for x in specs}) == 1))
        return self.construct(
            replace(
                first,
                head_size_v=None,
                alignment=None,
                sliding_window=first.sliding_window if windowed else None,
                attention_chunk_size=None,
                kv_quant_mode="NONE" if windowed else first.kv_quant_mode,
            )
        )

    def is_spec_uniform(self, layers: Layers) -> bool:
        """Only a failed assertion counts as no."""
        wanted = super().is_spec_uniform
        return self.deviate("S-05", lambda: wanted(layers), lambda: self.merges(layers))

    def merges(self, layers: Layers) -> bool:
        """True if the layers merge, False if an assertion fails; other errors are raised."""
        try:
            return not layers or bool(self.merge(list(layers.values())))
        except CoreError as error:
            if str(error) != "AssertionError":
                raise
            return False

    def is_type_uniform(self, layers: Layers) -> bool:
        """Only the first layer is asked."""
        wanted, specs = super().is_type_uniform, list(layers.values())
        name = "S-08"
        if {x.type for x in specs} == {Kind.MAMBA}:
            name = "S-09"
        elif any(x.type == Kind.SINK for x in specs):
            name = "S-16"
        return self.deviate(name, lambda: wanted(layers), lambda: self.accepted_by_first(specs))

    def accepted_by_first(self, specs: Sequence[Layer]) -> bool:
        """Equal block sizes, and the first spec accepts the others."""
        demand(bool(specs), "StopIteration")
        first = specs[0]
        if len({x.block_size for x in specs}) > 1:
            return False
        demand(first.type in REGISTERED)
        if first.type == Kind.MAMBA:
            return all(x.type == Kind.MAMBA and x.num_speculative_blocks == first.num_speculative_blocks for x in specs)
        if first.type in FULL_FAMILY:
            return all(x.type in FULL_FAMILY for x in specs)
        if first.type == Kind.WINDOW:
            return all(x.type in WINDOWS and x.sliding_window == first.sliding_window for x in specs)
        return self.accepts(first, specs)

    def lone_block_size(self, config: Config, specs: Sequence[Layer]) -> int:
        """The cache's block size, whatever the group's."""
        wanted = super().lone_block_size
        return self.deviate("C-03", lambda: wanted(config, specs), lambda: config.block_size)

    def hash_block_size(self, config: Config, sizes: Sequence[int]) -> int:
        """Any divisor is taken, also a negative one; zero is divided by."""
        wanted = super().hash_block_size
        return self.deviate("C-02", lambda: wanted(config, sizes), lambda: self.dividing(config, sizes))

    def dividing(self, config: Config, sizes: Sequence[int]) -> int:
        """The requested hash block size, or the greatest that divides all sizes."""
        size = gcd(*sizes) if config.hash_block_size is None else config.hash_block_size
        demand(all(b % size == 0 for b in sizes), "ValueError")
        return size

    def with_page(self, x: Layer, page: int) -> Layer:
        """Only ever by a larger block size, and a padding stays as it is."""
        wanted = super().with_page
        return self.deviate("C-04", lambda: wanted(x, page), lambda: self.with_larger_blocks(x, page))

    def with_larger_blocks(self, x: Layer, page: int) -> Layer:
        """The spec whose page must then be right."""
        if self.page(x) == page:
            return x
        times, rest = divmod(page, self.page(x))
        demand(not rest, "NotImplementedError")
        larger = self.construct(replace(x, block_size=x.block_size * times))
        demand(self.page(larger) == page)
        return larger

    def unify_hybrid(self, layers: Layers) -> Layers:
        """A window-MLA layer asserts that there is full attention."""
        full = any(x.type in FULL_FAMILY for x in layers.values())
        kinds = {x.type for x in layers.values()}
        wanted = super().unify_hybrid
        if self.is_one_kind(layers) or full or Kind.WINDOW_MLA not in kinds:
            return wanted(layers)
        self.fired.add("C-13")
        raise CoreError("AssertionError")

    def as_full(self, x: Layer, block_size: int) -> Layer:
        """The quantisation of chunks and window-MLA is lost, the window of the latter too; its padding is kept."""
        wanted = super().as_full
        return self.deviate("C-13", lambda: wanted(x, block_size), lambda: self.as_full_as_released(x, block_size))

    def as_full_as_released(self, x: Layer, block_size: int) -> Layer:
        """A layer without window or chunk."""
        if x.type == Kind.CHUNK:
            return super().as_full(replace(x, kv_quant_mode="NONE"), block_size)
        if x.type != Kind.WINDOW_MLA:
            return super().as_full(x, block_size)
        plain = replace(x, type=Kind.MLA, block_size=block_size, head_size_v=None, sliding_window=None)
        return self.construct(replace(plain, kv_quant_mode="NONE"))

    def general_groups(self, layers: Layers) -> list[LayerGroup]:
        """Nothing but hidden-state layers leaves nothing to take a minimum of."""
        if all(x.type == Kind.HIDDEN for x in layers.values()):
            self.fired.add("C-05")
            raise CoreError("ValueError")
        return super().general_groups(layers)

    def fit_hidden(self, x: Layer, page: int) -> Layer:
        """A row may be wider than the page, and an alignment changes the page."""
        wanted = super().fit_hidden
        return self.deviate("C-05", lambda: wanted(x, page), lambda: self.fit_hidden_as_released(x, page))

    def fit_hidden_as_released(self, x: Layer, page: int) -> Layer:
        """One row at least."""
        row = arith.page_latent(1, x.num_kv_heads, x.head_size, x.dtype)
        return self.construct(replace(x, block_size=max(page // row, 1), page_size_padded=page))

    def uniform_types(self, layers: Layers) -> list[Layer] | None:
        """One window-MLA layer is enough; others that are not MLA are dropped."""
        wanted = super().uniform_types
        return self.deviate("C-06", lambda: wanted(layers), lambda: self.uniform_types_as_released(layers))

    def uniform_types_as_released(self, layers: Layers) -> list[Layer] | None:
        """Types of the latent layers only."""
        latent = {name: x for name, x in layers.items() if x.type in MLA_FAMILY | {Kind.WINDOW_MLA}}
        if not any(x.type == Kind.WINDOW_MLA for x in layers.values()):
            return None
        types = super().uniform_types(latent)
        demand(types is not None)
        return types

    def layer_tuples(self, x: Layer, pages: Collection[int]) -> list[tuple[tuple[str, Layer], ...]]:
        """The padding is written into the spec object, which cannot be looked up again for the next layer."""
        own = {self.page(member) for member in x.members}
        demand(max(own) <= max(pages))
        targets = {page: min(other for other in pages if other >= page) for page in own}
        objects = [
            self._objects.get(name, name) for name, member in x.kv_cache_specs if targets[self.page(member)] not in own
        ]
        if len(set(objects)) < len(objects):
            self.fired.add("C-07")
            raise CoreError("KeyError")
        return super().layer_tuples(x, pages)

    def padded(self, x: Layer, page: int) -> Layer:
        """Exactly that page, whatever the alignment."""
        made = x if self.page(x) == page else replace(x, page_size_padded=page)
        return self.deviate("C-07", lambda: Rules().padded(x, page), lambda: made)
