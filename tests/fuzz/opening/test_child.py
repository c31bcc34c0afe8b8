import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockproof.fuzz.opening.child import ChildTarget, PythonPlace
from blockproof.fuzz.opening.process import ChildLimits
from blockproof.fuzz.opening.targets import open_here, open_target
from blockproof.fuzz.targets.base import TargetLostError, TargetUnavailableError
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Done, Failed, Group, ReadTable, Shape, Submit, Take

from ..waiting import gone, wait_until

HERE = Path(__file__).parents[1]
SHAPE = Shape((Group("full", 4),), 8, 64, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=64)


@pytest.fixture(autouse=True)
def fakes_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def opened() -> Iterator[list[ChildTarget]]:
    targets: list[ChildTarget] = []
    yield targets
    for target in targets:
        target.close()


def launch(opened: list[ChildTarget], fake: str, **limits: float) -> ChildTarget:
    target = ChildTarget(fake, f"fakes:{fake}", limits=ChildLimits(**limits))  # type: ignore[arg-type]
    opened.append(target)
    target.start(SHAPE)
    return target


def lost_at(target: ChildTarget, count: int = 1) -> TargetLostError:
    with pytest.raises(TargetLostError) as caught:
        target.step(Take(count))
    return caught.value


def test_child_gives_the_same_outcomes_and_snapshots_as_this_process() -> None:
    here, child = open_here("impl"), ChildTarget("impl", "impl")
    try:
        for index, attention in enumerate(("full", "sliding", "mamba", "full+sliding")):
            draw = SeededDraw(f"child/{index}")
            shape = draw_shape(draw, ATTENTION[attention])
            workload, model = Workload(draw, shape), Model(shape)
            assert child.start(shape) == here.start(shape)
            for _ in range(100):
                operation = workload.next(model)
                model.step(operation)
                assert child.step(operation) == here.step(operation), operation
    finally:
        child.close()


def test_values_keep_their_types_on_the_way(opened: list[ChildTarget]) -> None:
    target = launch(opened, "own_pid")
    outcome, snapshot = target.step(ReadTable("a"))
    assert outcome == Done(((1, 2), ("text", None), True))
    assert snapshot.events == (("cleared",),)
    assert target.version == "1.2"


def test_exit_is_a_crash_with_its_status(opened: list[ChildTarget]) -> None:
    lost = lost_at(launch(opened, "exits"), 7)
    assert (lost.kind, lost.detail) == ("crash", "exit status 7")


def test_abort_is_a_crash_with_signal_and_last_output(opened: list[ChildTarget]) -> None:
    lost = lost_at(launch(opened, "aborts"))
    assert lost.kind == "crash"
    assert "SIGABRT" in lost.detail
    assert "the last words" in lost.detail


def test_fresh_child_after_a_loss(opened: list[ChildTarget]) -> None:
    target = launch(opened, "exits")
    lost_at(target)
    with pytest.raises(TargetLostError, match="call start first"):
        target.step(ReadTable("a"))
    assert target.start(SHAPE)[0] == Done()
    assert isinstance(target.step(ReadTable("a"))[0], Done)


def test_hang_ends_at_the_deadline_and_says_where(opened: list[ChildTarget]) -> None:
    lost = lost_at(launch(opened, "answers_then_hangs", operation_s=0.3), 2)
    assert lost.kind == "hang"
    assert "no answer within 0.3 s" in lost.detail
    assert "lost_in_a_loop" in lost.detail


def test_hang_during_construction_ends_at_its_own_deadline() -> None:
    target = ChildTarget("fake", "fakes:hangs_at_start", limits=ChildLimits(start_s=2))
    with pytest.raises(TargetLostError) as caught:
        target.start(SHAPE)
    assert caught.value.kind == "hang"


def test_output_of_the_target_does_not_disturb(opened: list[ChildTarget]) -> None:
    target = launch(opened, "prints")
    for count in (1, 300_000, 10):
        assert target.step(Take(count))[0] == Done(count)
    assert isinstance(target.step(ReadTable("a"))[0], Done)


def test_growth_over_many_operations_is_noticed(opened: list[ChildTarget]) -> None:
    target = launch(opened, "eats", growth_bytes=64 << 20)

    def take_again_and_again() -> None:
        for _ in range(600):
            target.step(Take(1))

    with pytest.raises(TargetLostError) as caught:
        take_again_and_again()
    assert caught.value.kind == "memory"
    assert "allowed are 64 MiB more" in caught.value.detail


def test_growth_below_the_limit_is_not_reported(opened: list[ChildTarget]) -> None:
    target = launch(opened, "eats", growth_bytes=64 << 20)
    for _ in range(300):
        target.step(Take(0))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory of a busy child is read from /proc")
def test_growth_within_one_operation_is_noticed(opened: list[ChildTarget]) -> None:
    lost = lost_at(launch(opened, "eats_for_ever", growth_bytes=64 << 20, operation_s=60))
    assert lost.kind == "memory"


@pytest.mark.parametrize("fake", ["answers_bytes", "scribbles", "raises"])
def test_nonsense_is_a_protocol_loss(opened: list[ChildTarget], fake: str) -> None:
    assert lost_at(launch(opened, fake)).kind == "protocol"


def test_exception_of_a_target_is_shown(opened: list[ChildTarget]) -> None:
    lost = lost_at(launch(opened, "raises"))
    assert "RuntimeError: not meant to be raised" in lost.detail
    assert (lost.cause.type, lost.cause.message) == ("RuntimeError", "not meant to be raised")
    assert (lost.cause.frames[-1].file, lost.cause.frames[-1].function) == ("fakes.py", "raises.<locals>.fail")


def test_an_exception_of_the_core_arrives_with_its_cause():
    core = open_target("impl", isolate=True)
    try:
        core.start(SHAPE)
        core.step(Submit("a", (0,)))
        outcome, _ = core.step(Allocate("a", 0))
    finally:
        core.close()
    assert outcome == Failed("ValueError")
    assert outcome.cause is not None
    assert outcome.cause.message
    adapter, *inner = outcome.cause.frames
    assert (adapter.file, adapter.adapter) == ("style.py", True)
    assert inner
    assert not any(frame.adapter for frame in inner)


def test_interrupt_is_for_the_parent_alone(opened: list[ChildTarget]) -> None:
    target = launch(opened, "own_pid")
    outcome, _ = target.step(Take(1))
    assert isinstance(outcome, Done)
    assert isinstance(outcome.value, int)
    os.kill(outcome.value, signal.SIGINT)
    assert target.step(Take(1))[0] == outcome


def test_close_ends_the_child_and_what_it_started(opened: list[ChildTarget]) -> None:
    target = launch(opened, "leaves_child")
    outcome, _ = target.step(Take(1))
    assert isinstance(outcome, Done)
    assert isinstance(outcome.value, int)
    target.close()
    target.close()
    left_behind = outcome.value
    wait_until(lambda: gone(left_behind))


def test_busy_child_ends_when_its_parent_is_killed() -> None:
    script = """
        import os, sys, threading
        from blockproof.fuzz.opening.child import ChildTarget
        from blockproof.model.ops import Group, Shape, Take
        sys.path.insert(0, sys.argv[1])
        target = ChildTarget("fake", "fakes:answers_then_hangs")
        target.start(Shape((Group("full", 4),), 8, 64, 4, 4, 64))
        print(target.step(Take(1))[0].value, flush=True)
        target.step(Take(2))
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(HERE)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_until(lambda: gone(child))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("fakes:cannot_be_made", "no such device"),
        ("fakes:makes_nothing", "NoneType without 'name'"),
        ("fakes:forgotten", "has no function 'forgotten'"),
        ("no_such_module:target", "No module named 'no_such_module'"),
    ],
)
def test_target_that_cannot_be_made_is_unavailable(spec: str, says: str) -> None:
    target = ChildTarget("fake", spec)
    with pytest.raises(TargetUnavailableError, match=says) as caught:
        target.start(SHAPE)
    assert "\n" not in str(caught.value)
    target.close()


def test_interpreter_that_does_not_exist_is_unavailable() -> None:
    with pytest.raises(TargetUnavailableError, match="cannot run /nowhere/python"):
        ChildTarget("fake", "impl", PythonPlace(Path("/nowhere/python"))).start(SHAPE)


def test_request_longer_than_a_pipe_holds(opened: list[ChildTarget]) -> None:
    target = launch(opened, "own_pid")
    assert isinstance(target.step(Submit("a", tuple(range(200_000))))[0], Done)


def test_child_side_needs_only_the_standard_library(tmp_path: Path) -> None:
    import blockproof.fuzz
    import blockproof.model

    (tmp_path / "blockproof").mkdir()
    for package in (blockproof.fuzz, blockproof.model):
        place = Path(package.__path__[0])
        (tmp_path / "blockproof" / package.__name__.rpartition(".")[2]).symlink_to(place.resolve())
    code = "import sys; sys.path.insert(0, sys.argv[1]); import blockproof.fuzz.opening.serve"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_a_target_cannot_do_or_show_and_what_it_copies_is_told(opened: list[ChildTarget]) -> None:
    target = ChildTarget("fake", "fakes:copies")
    opened.append(target)
    assert (target.lacks, target.hides) == (frozenset({"Reset"}), frozenset({"events"}))  # before it is started
    target.start(SHAPE)
    assert target.hides == {"events", "labels"}
    target.step(Take(3))
    assert list(target.copies) == [(3, 4)]
    target.step(ReadTable("a"))
    assert list(target.copies) == []


# A changed target.


def test_a_fix_is_applied_before_the_target_is_opened(opened: list[ChildTarget], tmp_path: Path) -> None:
    fix = tmp_path / "fix.py"
    fix.write_text(
        "from blockproof.impl.pool.block_pool import BlockPool\n\n\n"
        "def fix():\n    BlockPool.get_num_free_blocks = lambda self: 77\n"
    )
    changed, plain = open_target("impl", fix=fix), ChildTarget("impl", "impl")
    opened += [changed, plain]  # type: ignore[list-item]
    numbers = [target.start(SHAPE)[1].num_free for target in (changed, plain)]
    assert numbers == [77, 7]


def test_a_fix_that_fails_makes_the_target_unavailable(opened: list[ChildTarget], tmp_path: Path) -> None:
    fix = tmp_path / "fix.py"
    fix.write_text("def fix():\n    raise KeyError('no such class')\n")
    opened.append(ChildTarget("impl", "impl", fix=fix))
    with pytest.raises(TargetUnavailableError, match="cannot be applied: KeyError: 'no such class'"):
        opened[0].start(SHAPE)
    with pytest.raises(ValueError, match="cannot change a program"):
        open_target("program:true", fix=fix)
