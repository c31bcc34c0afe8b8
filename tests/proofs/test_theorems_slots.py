"""What the theorems about slots, pages and views rest on: roles do what numpy and torch do."""

import random
from typing import Any

import numpy as np
import pytest
from blockproof.impl import (
    BlockTables,
    DeviceTables,
    FullAttentionSpec,
    GroupTable,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    page_layout,
)
from blockproof.proofs import roles
from blockproof.proofs.roles.slots import One


def role(name: str) -> Any:
    return roles.impl().find(name)


# One element in place of many.


@pytest.mark.parametrize("value", [0, 1, 7, -1, -7, 2**62])
def test_vectors_of_one_element_do_what_numpy_does(value):
    array, one = np.array([value], dtype=np.int64), One(value)
    pairs = [(one + 3, array + 3), (3 + one, 3 + array), (one - 3, array - 3), (one // 3, array // 3)]
    for result, expected in [*pairs, (one % 3, array % 3)]:
        assert result.value == expected.item()
    comparisons: Any = (np.less, np.less_equal)
    for compared in comparisons:
        for other in (value - 1, value, value + 1):
            compared(one, One(other), found := One(7))
            assert found.value == compared(array, other).item()
    if abs(value) < 100:
        assert (one * 3).value == (array * 3).item()
        assert ((one - One(2)) * 5).value == ((array - np.array([2])) * 5).item()


def test_slots_of_many_tokens_are_those_of_each_one():
    pytest.importorskip("torch")
    generator = random.Random(3)
    slot = role("slot")
    for _ in range(50):
        b, n = generator.randrange(1, 6), generator.randrange(1, 5)
        tables = BlockTables([GroupTable(b, n)], 3)
        device = DeviceTables(tables, "cpu", 3 * n * b)
        rows = [[generator.randrange(1, 50) for _ in range(n)] for _ in range(3)]
        tables.append(0, range(3), rows)
        tables.schedule([0, 0, 0], [n * b] * 3)
        (step,) = device.commit().tolist()
        assert step == [slot(rows[row][t // b], t, b, n) for row in range(3) for t in range(n * b)]
        assert step == [rows[row][t // b] * b + t % b for row in range(3) for t in range(n * b)]


def test_a_token_without_a_slot_is_refused_as_by_the_tables():
    tables = BlockTables([GroupTable(2, 2)], 1)
    tables.append(0, [0], [[5, 0]])
    for entry, position in ((0, 2), (0, 3), (5, 4), (5, 100)):
        with pytest.raises(ValueError, match="no slot"):
            role("slot")(entry, position, 2, 2)
        with pytest.raises(ValueError, match="position"):
            tables.schedule([position])


# Pages and views against torch.


def layer(spec: Any, num_blocks: int = 3) -> Any:
    torch = pytest.importorskip("torch")
    from blockproof.impl import KVCacheTensors

    size = num_blocks * spec.page_size_bytes
    config = KVCacheConfig(num_blocks, [KVCacheTensor(size, ["layer"])], [KVCacheGroupSpec(["layer"], spec)])
    return KVCacheTensors(config, [torch.zeros(size, dtype=torch.uint8)]).layers["layer"]


def test_pages_are_those_of_the_layout():
    b, h, d, w = 4, 2, 6, 10
    half, byte = np.dtype(np.float16), np.dtype(np.uint8)
    modes = {"scaled_page": KVQuantMode.INT8_PER_TOKEN_HEAD, "packed_page": KVQuantMode.NVFP4}
    cases = [
        ("plain_page", (b, h, d, w, 2), FullAttentionSpec(b, num_kv_heads=h, head_size=d, head_size_v=w, dtype=half)),
        ("latent_page", (b, h, d, 2), MLAAttentionSpec(b, num_kv_heads=h, head_size=d, dtype=half)),
        ("state_page", (b, [(6, 2), (5, 1)]), MambaSpec(b, ((6,), (5,)), (half, byte))),
    ]
    cases += [
        (
            name,
            (b, h, d, w, 1),
            FullAttentionSpec(b, num_kv_heads=h, head_size=d, head_size_v=w, dtype=byte, kv_quant_mode=mode),
        )
        for name, mode in modes.items()
    ]
    for name, sizes, spec in cases:
        if name == "state_page":
            with pytest.raises(ValueError, match="misaligned"):
                role(name)(*sizes)
            continue
        layout = page_layout("layer", spec)
        assert role(name)(*sizes) == (layout.page_size, [(part.offset, part.nbytes) for part in layout.parts])


def test_elements_lie_where_torch_has_them():
    spec = FullAttentionSpec(4, num_kv_heads=2, head_size=3, head_size_v=5, dtype=np.dtype(np.float16))
    views_of_layer, element = layer(spec), role("element")
    begin = views_of_layer.pages.data_ptr()
    generator = random.Random(2)
    for part in views_of_layer.layout.parts:
        view = views_of_layer.parts[part.name]
        for _ in range(50):
            index = [generator.randrange(length) for length in view.shape]
            at = element(spec.page_size_bytes // 2, part.offset // 2, 2, part.shape, 3, index)
            assert view[tuple(index)].data_ptr() - begin == 2 * at


def test_places_are_those_that_torch_finds():
    place = role("place")
    for ratio in (1, 2):
        spec = MLAAttentionSpec(8, num_kv_heads=1, head_size=2, dtype=np.dtype(np.float16), compress_ratio=ratio)
        cache = layer(spec)
        blocks, entries = cache.locate(list(range(cache.num_places)))
        found = [place(slot, 8 // ratio, ratio, 3) for slot in range(cache.num_places)]
        assert found == list(zip(blocks.tolist(), entries.tolist(), strict=True))
        with pytest.raises(ValueError, match="does not exist"):
            place(cache.num_places, 8 // ratio, ratio, 3)


def test_a_buffer_is_shared_where_pages_agree_and_fill_it():
    shared = role("shared")
    assert shared(4, 8, 6, 3, 5 * 48, 5) == (48, 48)
    assert shared(4, 8, 6, 3, 5 * 48 + 1, 5) is None
    assert shared(4, 8, 6, 4, 5 * 48, 5) is None
    spec = SlidingWindowSpec(4, num_kv_heads=1, head_size=6, dtype=np.dtype(np.uint8), sliding_window=1)
    assert page_layout("layer", spec).page_size == 48
