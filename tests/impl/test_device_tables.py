"""Tables and slots on a device: equal to the definition whatever a step does, and planted faults of kernels are found.

On the CPU with torch's kernels, with Triton's interpreter where Triton is installed, and on a GPU where there is one.
"""

import gc
import sys
import weakref
from importlib import import_module

import numpy as np
import pytest
from blockproof.impl import BlockTables, DeviceTables, GroupTable
from blockproof.impl.tensors.kernel_choice import kernel_module
from blockproof.impl.tensors.queues import CudaQueue, HostQueue

from .devices import HAS_GPU, KERNELS, ROOT, interpreted, needs_triton, torch

sys.path.append(str(ROOT / "benchmarks"))
device_steps = import_module("device_steps")


def queue(device: str):
    return device_steps.CudaQueue if device == "cuda" else device_steps.LateQueue


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
def test_random_steps_give_what_the_definition_says(kernels, device):
    opened = device_steps.opener(kernels, device, queue(device))
    assert [wrong for wrong in device_steps.steps(1500, 3, opened) if wrong] == []


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
@pytest.mark.parametrize(
    "fault",
    [
        (module, *fault)
        for module in ("torch_kernels", "device_tables", "block_tables")
        for fault in device_steps.FAULTS[module]
    ],
    ids=lambda fault: f"{fault[0]}: {fault[1]}",
)
def test_a_planted_fault_is_found(fault, kernels, device):
    module, _, old, new = fault
    if device == "cuda" and module == "device_tables":
        pytest.skip("a GPU may be too fast to show it")
    if module == "torch_kernels" and kernels != "torch":
        pytest.skip("of the other kernels")
    assert device_steps.found(module, old, new, kernels, device)


@needs_triton
def test_the_interpreter_gives_the_same():
    assert "60 steps, triton on cpu: 0 differ" in interpreted("--kernels", "triton", "--steps", "60")


@needs_triton
@pytest.mark.slow
def test_the_interpreter_finds_every_fault_of_the_kernels():
    said = interpreted(
        "--kernels", "triton", "--steps", "150", "--faults", "triton_kernels"
    )  # the host's are found with torch, above
    assert said.count("found at step") == len(device_steps.FAULTS["triton_kernels"])


# What is launched, and where.


class Counting(HostQueue):
    """Counts what is queued."""

    def __init__(self):
        self.copies = self.kernels = self.captured = 0

    def copy(self, target, source):
        self.copies += 1
        super().copy(target, source)

    def call(self, kernel, *arguments):
        self.kernels += 1
        super().call(kernel, *arguments)

    def capture(self, work):
        self.captured += 1
        return super().capture(work)


def opened(groups: int = 2, **options):
    host = BlockTables([GroupTable(4, 6)] * groups, 4)
    return host, DeviceTables(host, "cpu", 30, queue=Counting(), **options)


def test_a_step_is_one_copy_and_two_kernels_and_nothing_where_nothing_has_changed():
    host, device = opened()
    assert device.commit().shape == (2, 0)
    assert (device.queue.copies, device.queue.kernels) == (0, 0)
    host.append(None, [0, 1], np.array([1, 2, 3, 4]))
    host.schedule([0, 1])
    assert device.commit().tolist() == [[4, 9], [12, 17]]
    assert (device.queue.copies, device.queue.kernels) == (1, 2)
    device.commit()
    assert (device.queue.copies, device.queue.kernels) == (1, 2)
    host.clear([0])
    device.commit()
    assert (device.queue.copies, device.queue.kernels) == (2, 3)


def test_addresses_stay_and_the_tables_change_only_by_commit():
    host, device = opened()
    tables, places = device.table(1), device.places
    addresses = [tables.data_ptr(), places.data_ptr()]
    host.append(None, [0, 1], np.array([1, 2, 3, 4]))
    assert not tables.any()
    for _ in range(3):
        host.schedule([1, 1])
        device.commit(20)
        assert tables[:2, 0].tolist() == [3, 4]
        assert places[0, :3].tolist() == [5, 9, -1]
        assert [device.table(1).data_ptr(), device.commit(9).data_ptr()] == addresses


def test_what_was_in_the_tables_before_arrives_with_the_first_commit():
    host = BlockTables([GroupTable(4, 6)], 4)
    host.append(0, [0, 3], [[5, 6], [7]])
    device = DeviceTables(host, "cpu", 30)
    device.commit()
    assert device.table(0).tolist() == host.table(0).tolist()


def test_more_changes_than_a_buffer_holds_take_several_copies():
    host, device = opened(max_changes=5)
    host.append(None, [0, 1], [[1] * 6, [2] * 3, [3] * 6, [4] * 2])
    host.schedule([0, 0], [2, 1])
    assert device.commit().tolist() == [[4, 5, 8], [12, 13, 16]]
    assert device.queue.copies == 4
    for group in (0, 1):
        assert device.table(group).tolist() == host.table(group).tolist()


def test_the_smallest_captured_graph_that_fits_is_replayed():
    host, device = opened()
    device.commit(4)  # a step before graphs are captured does not keep those behind it from them
    device.capture(8, 20)
    device.capture(4, 4)
    # Of each buffer both kernels, that of tables alone and that of slots, after a copy; the small ones in place, too.
    assert device.queue.captured == 3 * (6 + 4)
    calls = []

    def noted(sizes, replay):
        def call():
            calls.append(sizes)
            replay()

        return call

    for sizes, of_buffers in device._graphs.items():
        of_buffers[:] = [tuple(noted(sizes, replay) for replay in replays) for replays in of_buffers]
    host.append(None, [0, 1], np.array([1, 2, 3, 4]))
    host.schedule([0, 1])
    assert device.commit(4).tolist() == [[4, 9, -1, -1], [12, 17, -1, -1]]
    host.schedule([0, 1])
    assert device.commit(6).tolist() == [[4, 9, -1, -1, -1, -1], [12, 17, -1, -1, -1, -1]]
    host.append(None, [2], np.array([5, 6]))
    host.schedule([0, 1])
    device.commit(6)
    host.replace(0, [2], [[1] * 5])
    assert device.commit().shape == (2, 0)
    host.schedule([0], [4])
    device.commit(25)
    assert calls == [(4, 4), (0, 20), (8, 20), (8, 0)]
    assert device.table(0).tolist() == host.table(0).tolist()


@pytest.mark.parametrize(("changes", "most"), [(0, 2), (1, 2), (2, 2), (0, 5), (3, 5), (0, 100), (100, 100)])
def test_what_a_graph_of_ones_own_has_no_room_for_is_written_first(changes, most):
    host, device = opened(max_changes=most)
    for first in (1, 7, 3):
        host.replace(None, [0, 1], [[first] * 2, [first + 1] * 3, [first + 2], [first + 3] * 4])
        host.schedule([0, 2], [2, 1])
        with pytest.raises(ValueError, match="3 tokens, but room for 2: launch without a graph"):
            device.upload(changes, 2)
        device.upload(changes, 4)
        device.launch(changes, 4)  # as captured
        assert device.places[0, :4].tolist() == [4 * first, 4 * first + 1, 4 * first + 6, -1]
        for group in (0, 1):
            assert device.table(group).tolist() == host.table(group).tolist()


def test_a_step_without_changes_or_without_tokens_is_one_copy_and_one_kernel():
    host, device = opened()
    host.replace(None, [0, 1], [[1], [2], [3], [4]])
    device.commit()
    assert (device.queue.copies, device.queue.kernels) == (1, 1)
    host.schedule([0, 1])
    assert device.commit(4).tolist() == [[4, 9, -1, -1], [12, 17, -1, -1]]
    assert (device.queue.copies, device.queue.kernels) == (2, 2)


def test_a_captured_step_in_order_is_read_in_place_and_another_is_copied():
    host, device = opened()
    device.capture(4, 4)
    seen = device.queue.copies, device.queue.kernels

    def queued():
        nonlocal seen
        before, seen = seen, (device.queue.copies, device.queue.kernels)
        return seen[0] - before[0], seen[1] - before[1]

    host.replace(None, [0, 1], [[1], [2], [3], [4]])
    device.commit()
    assert queued() == (0, 1)
    host.schedule([0, 1])
    assert device.commit(4).tolist() == [[4, 9, -1, -1], [12, 17, -1, -1]]
    assert queued() == (0, 1)
    host.schedule([0, 2], [2, 1])
    assert device.commit(4).tolist() == [[4, 5, 10, -1], [12, 13, 18, -1]]
    assert queued() == (1, 1)
    host.append(None, [0, 1], [[5], [6], [7], [8]])
    host.schedule([4, 5])
    assert device.commit(4).tolist() == [[20, 25, -1, -1], [28, 33, -1, -1]]
    assert queued() == (0, 2)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_capture_between_steps_does_not_say_anew_what_was_read_long_ago(steps):
    host, device = opened()
    host.replace(None, [0, 1], [[1], [2], [3], [4]])
    device.commit()
    device.capture(4, 4)
    for _ in range(steps):
        host.schedule([0, 1])
        device.commit(4)
    device.capture(4, 2)
    for position in range(3):
        host.schedule([position, position])
        assert device.commit(4)[0].tolist() == [4 + position, 8 + position, -1, -1]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda host, device: device.commit(31), "0 tokens padded to 31: there is room for 30"),
        (lambda host, device: (host.schedule([0, 0], [3, 3]), device.commit(5)), "6 tokens padded to 5"),
        (lambda host, device: device.commit(-1), "0 tokens padded to -1"),
        (lambda host, device: device.capture(4, 31), "4 changes and 31 tokens: there is room for 16384 and 30"),
        (lambda host, device: device.table(2), "there is no group 2: groups are 0 to 1"),
        (lambda host, device: device.table(-1), "there is no group -1"),
        (lambda host, device: DeviceTables(host, "cpu", 4, max_changes=0), "4 tokens and 0 changes: give 0 and 1"),
        (lambda host, device: DeviceTables(host, "cpu", -1), "room for -1 tokens"),
        (lambda host, device: device.capture(-1, 4), "-1 changes and 4 tokens: there is room for"),
        (lambda host, device: device.launch(4, 31), "4 changes and 31 tokens: there is room for 16384 and 30"),
        (lambda host, device: device.launch(-1, 0), "-1 changes and 0 tokens"),
        (lambda host, device: device.upload(-1), "-1 changes and 0 tokens"),
        (lambda host, device: DeviceTables(host, "nowhere", 4), "device 'nowhere' cannot be used here"),
    ],
)
def test_what_there_is_no_room_for_is_refused(call, says):
    host, device = opened()
    host.append(None, [0, 1], np.array([1, 2, 3, 4]))
    with pytest.raises(ValueError, match=says):
        call(host, device)


def test_slots_do_not_overflow_32_bits():
    host = BlockTables([GroupTable(1024, 1)], 1)
    device = DeviceTables(host, "cpu", 4)
    host.append(0, [0], [[2**31 - 1]])
    host.schedule([1022], [2])
    assert device.commit().tolist() == [[(2**31 - 1) * 1024 + 1022, (2**31 - 1) * 1024 + 1023]]


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
def test_without_groups_a_step_is_nothing(kernels, device):
    host = BlockTables([], 2)
    made = DeviceTables(host, device, 8)
    made.capture(4, 8)
    for _ in range(5):
        host.schedule([0, 1])
        assert made.commit(4).shape == (0, 4)
    assert host.num_tokens == 0


def test_a_queue_that_never_does_its_work_is_no_endless_loop():
    host, device = opened()
    device.queue.call = lambda kernel, *arguments: None
    host.schedule([])
    for _ in range(3):
        device.commit(3)
    with pytest.raises(RuntimeError, match="once for each `upload`"):
        device.commit(3)


@pytest.mark.parametrize("capturing", [False, True])
def test_memory_is_given_back_once_the_device_is_done_with_it(capturing, monkeypatch):
    device, waited = opened()[1], []
    owner = weakref.ref(device)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(owner() is None))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    CudaQueue().keeps(device)
    assert waited == []
    del device
    gc.collect()
    assert waited == [True] * (not capturing)


@pytest.mark.parametrize(("kernels", "device"), KERNELS)
@pytest.mark.parametrize("modes", [(True, False, True), (False, True, False)])
def test_steps_are_taken_in_and_outside_of_inference_mode(modes, kernels, device):
    made, *of_steps = modes
    with torch.inference_mode(made):
        host = BlockTables([GroupTable(4, 6)], 4)
        tables = DeviceTables(host, device, 8, kernels=kernel_module(torch.device(device), kernels).for_tables)
    for mode in of_steps:
        with torch.inference_mode(mode):
            host.replace(0, [0], [[3, 4]])
            host.schedule([5])
            assert tables.commit(2).tolist() == [[17, -1]]


@pytest.mark.skipif(not HAS_GPU, reason="no GPU")
def test_the_kernels_can_be_captured_with_what_reads_the_tables():
    host = BlockTables([GroupTable(4, 6)] * 2, 4)
    device = DeviceTables(host, "cuda", 30)
    found = torch.zeros(2, 8, dtype=torch.int64, device="cuda")
    device.launch(8, 8)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.launch(8, 8)
        found.copy_(device.places[:, :8])
    for position in range(3):
        host.replace(None, [0, 1], [[1 + position], [2], [3], [4]])
        host.schedule([position, position])
        device.upload()
        graph.replay()
        assert found.tolist() == [
            [4 + 5 * position, 8 + position, *[-1] * 6],
            [12 + position, 16 + position, *[-1] * 6],
        ]


def test_the_program_of_the_guide_prints_what_it_says(capsys):
    page = (ROOT / "docs/guide/device.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    exec(compile(program, "device.md", "exec"), {})
    said = [line.partition("  # ")[2] for line in program.splitlines() if line.startswith("print(")]
    assert capsys.readouterr().out.splitlines() == said
