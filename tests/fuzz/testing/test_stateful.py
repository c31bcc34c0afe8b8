"""The Hypothesis state machine with a rule for each operation, as its users run it."""

import re
import shlex
import subprocess
import sys
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz import kv_cache_machine, replay_text, shapes
from blockproof.fuzz.adapters.vllm.binding import Binding
from blockproof.fuzz.engines.failing import FindingError
from blockproof.fuzz.faults import FAULTS
from blockproof.fuzz.findings.oracle_names import EVERY, LOCKSTEP, MODEL_FREE, SHADOW
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.targets.base import Target
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import TraceFile, read_trace
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.model import ops
from blockproof.model.legal import allows
from blockproof.model.ops import Done, Failed, Operation, Outcome, Shape
from blockproof.model.snapshot import Snapshot
from hypothesis import HealthCheck, Phase, given, reproduce_failure, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test

FAULT = "fault:free-order-reversed"
QUICK = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
"""All but the explanation, which traces every line and takes a minute under Python 3.11."""
SMALL = Shape((ops.Group("full", 1),), 4, 4, 1, 1, 4)
"""Where only one shape is drawn, shrinking takes no time."""
LAST_LINES = ["state.oracles_agree()", "state.teardown()"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings and examples are written below the current folder."""
    monkeypatch.chdir(tmp_path)


def case_of(machine: Any, **changed: Any) -> Any:
    """The TestCase that pytest would collect, with the same examples each time."""
    case = machine.TestCase
    usual: dict[str, Any] = {"derandomize": True, "database": None, "phases": QUICK, "report_multiple_bugs": False}
    case.settings = settings(case.settings, **(usual | changed))
    return case


def run(machine: Any, **changed: Any) -> unittest.TestResult:
    """What unittest makes of it."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case_of(machine, **changed)).run(result)
    assert result.testsRun == 1
    return result


def text_of_failure(machine: Any, **changed: Any) -> str:
    """All that a person sees."""
    result = run(machine, **changed)
    assert not result.errors
    ((_, text),) = result.failures
    return text


def steps_in(text: str) -> list[str]:
    """The lines of the smallest example."""
    return [line for line in text.splitlines() if re.match(r"(\w+ = )?state\b", line)]


class Recording:
    """The clean core, which notes what it is asked."""

    name = "recording"

    def __init__(self, lacks: frozenset[str] = frozenset(), core: str = "impl") -> None:
        self.lacks = lacks
        self.asked: list[Operation] = []
        self.shapes: list[Shape] = []
        self._core = open_target(core)
        self.offers: frozenset[str] = getattr(self._core, "offers", frozenset())

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        self.shapes.append(shape)
        return self._core.start(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        self.asked.append(operation)
        return self._core.step(operation)

    def close(self) -> None:
        self._core.close()

    @property
    def kinds(self) -> Counter[str]:
        return Counter(type(operation).__name__ for operation in self.asked)


# What passes, and what it has tested.


def test_our_core_passes_and_every_operation_is_asked_for():
    target = Recording()
    result = run(kv_cache_machine(target, attention=("full", "full+cross", "full+mamba")), max_examples=150)
    assert result.wasSuccessful(), result.failures or result.errors
    assert set(target.kinds) == set(ops.OPERATIONS) - {"Landed"}, "which is no call on a core that is not told"
    allocations = [one for one in target.asked if isinstance(one, ops.Allocate)]
    for wanted in ("hit", "external", "delay", "gate", "lookahead", "reserved", "encoder_tokens"):
        assert any(getattr(one, wanted) for one in allocations), wanted
    assert any(one.rejected for one in target.asked if isinstance(one, ops.Advance))
    submits = [one for one in target.asked if isinstance(one, ops.Submit)]
    for wanted in ("adapter", "salt", "items", "embeds", "skip_lookup"):
        assert any(getattr(one, wanted) for one in submits), wanted
    assert len({tuple(group.kind for group in shape.groups) for shape in target.shapes}) == 3


@pytest.mark.filterwarnings("ignore:Using `assume` outside")
def test_a_load_may_fail_in_part():
    target = Recording()
    state = kv_cache_machine(target, attention=("full",))()
    state.start(shape=ops.Shape((ops.Group("full", 2),), 20, 32, 2, 2, 32))
    for missing, asked in ((0, 0), (2, 2), (9, 5)):
        request = state.submit(prompt=(0,) * 9)
        state.allocate_external(request=request, external=6, new_tokens=1, delay=True)
        state.arrive(request=request, missing=missing)
        assert target.asked[-1] == ops.Arrive(request.name, asked), "one token at least is left"


def test_several_requests_take_their_step_in_one_call_where_the_target_offers_it():
    target = Recording()
    result = run(kv_cache_machine(target, attention=("full",)), max_examples=400)
    assert result.wasSuccessful(), result.failures or result.errors
    batches = [one for one in target.asked if isinstance(one, ops.AllocateBatch)]
    assert any(len(one.requests) > 1 for one in batches)
    assert any(one.lookahead for one in batches)
    assert any(one.new_tokens > 1 for one in batches)
    mixed = Recording()
    assert run(kv_cache_machine(mixed, attention=("full+sliding", "mamba")), max_examples=100).wasSuccessful()
    assert mixed.kinds["AllocateBatch"]
    with_contract, without = Recording(), Recording()
    without.offers = frozenset()
    for other, oracles in ((with_contract, EVERY), (without, (LOCKSTEP,))):  # the contract has them asked one by one
        assert run(kv_cache_machine(other, attention=("full",), oracles=oracles), max_examples=30).wasSuccessful()
        assert other.kinds["Allocate"]
        assert not other.kinds["AllocateBatch"]


def test_it_passes_hypothesis_health_checks():
    """Those that a state machine is excused from as well: nothing is filtered, and drawing is not slow."""
    machine = kv_cache_machine("impl")
    excused = (HealthCheck.too_slow,)  # a busy machine
    result = run(machine, max_examples=30, suppress_health_check=excused)
    assert result.wasSuccessful(), result.failures or result.errors


def test_every_step_is_one_that_a_scheduler_may_take():
    """With states of layers, of which a scheduler may ask less, as well as without them."""
    seen: Counter[str] = Counter()

    class Legal(kv_cache_machine("impl", attention=("full", "mamba", "full+mamba"))):  # type: ignore[misc]  # see below
        def ask(self, operation: Operation) -> bool:
            assert allows(self.scene, operation), operation
            if isinstance(operation, ops.Allocate) and any(one.kind == "mamba" for one in self.run.shape.groups):
                start = self.scene.requests[operation.request].computed + operation.new_tokens
                seen["drafts"] += start > len(self.scene.requests[operation.request].tokens)
                seen["external"] += operation.external > 0
            return bool(super().ask(operation))

    assert run(Legal, max_examples=120).wasSuccessful()
    assert seen["drafts"]
    assert seen["external"]


def test_other_oracles_judge_without_a_model():
    machine = kv_cache_machine("impl", oracles=MODEL_FREE, attention=("full", "full+sliding"))
    assert run(machine, max_examples=30).wasSuccessful()
    machine = kv_cache_machine("fault:skipped-off-by-one", oracles=(SHADOW,), attention=("sliding",))
    assert raised_by(machine, max_examples=300, phases=[Phase.generate]).finding.oracle == SHADOW


def test_the_same_examples_are_drawn_each_time():
    drawn = []
    for _ in range(2):
        target = Recording()
        assert run(kv_cache_machine(target), max_examples=10).wasSuccessful()
        drawn.append((target.shapes, target.asked))
    assert drawn[0] == drawn[1]


def test_settings_say_how_long_a_run_is():
    target = Recording()
    assert run(kv_cache_machine(target), max_examples=10, stateful_step_count=4).wasSuccessful()
    assert 0 < len(target.asked) <= 2 * 4 * len(target.shapes)  # a hit is looked up and allocated in one step


def test_what_the_target_lacks_is_never_asked_for():
    lacks = frozenset({"Reset", "Preempt", "Release", "drafts", "Allocate.external", "Submit.items", "Shape.eagle"})
    target = Recording(lacks | {"Group.kind=mamba", "hybrids"})
    assert run(kv_cache_machine(target), max_examples=60).wasSuccessful()
    assert not set(target.kinds) & {"Reset", "Preempt", "Release", "Take", "Touch", "Reject", "Arrive"}
    assert not any(one.external for one in target.asked if isinstance(one, ops.Allocate))
    assert not any(one.rejected for one in target.asked if isinstance(one, ops.Advance))
    assert not any(one.items for one in target.asked if isinstance(one, ops.Submit))
    assert {len(shape.groups) for shape in target.shapes} == {1}
    assert "mamba" not in {shape.groups[0].kind for shape in target.shapes}
    assert not any(shape.eagle for shape in target.shapes)


def test_a_target_that_builds_nothing_does_not_pass():
    class Nothing(Recording):
        def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
            return Failed("NotImplementedError"), None

    target = Nothing(frozenset({"Reset"}))  # so it is judged without a model
    ((_, text),) = run(kv_cache_machine(target)).errors
    assert Unsatisfiable.__name__ in text


def test_a_target_without_any_core_of_this_attention_says_so():
    target = Recording(frozenset({"Group.kind=mamba"}))
    ((_, text),) = run(kv_cache_machine(target, attention=("mamba",))).errors
    assert "the target has no core for attention mamba, as its `lacks` says" in text


# What fails, and what is printed of it.


@pytest.mark.slow
def test_a_failure_reads_as_steps_and_its_command_repeats_it():
    text = text_of_failure(kv_cache_machine(FAULT, shapes=st.just(SMALL)))
    first, *steps, last = steps_in(text)
    assert (first, [*steps[-1:], last]) == ("state = KVCacheMachine()", LAST_LINES)
    assert steps[0] == f"state.start(shape={SMALL!r})"
    called = steps[1:-1]
    assert len(called) <= 6
    assert any(re.fullmatch(r"a = state\.submit\w*\(prompt=\(0,[^)]*\)(, \w+=None)?\)", line) for line in called)
    assert any(re.fullmatch(r"state\.(allocate\w*|step)\(request=a, \w+=.*\)", line) for line in called)
    assert re.fullmatch(r"state\.(free|preempt)\(request=[ab]\)", called[-1])
    assert "\\x" not in text
    assert len(text.splitlines()) < 45
    kind = re.search(
        r"failing\.(\w+): lockstep: model and target differ in `free` at operation \d: (Free|Preempt) a", text
    )
    assert kind is not None
    assert kind[1] == f"free_at_{kind[2]}"
    words = shlex.split(re.search(r"^repeat the finding: (.*)$", text, re.MULTILINE)[1])
    assert words[:2] == ["blockproof", "replay"]
    again = subprocess.run(
        [sys.executable, "-m", "blockproof.fuzz.cli", *words[1:]], capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 1, again.stderr
    assert "differ in `free`" in again.stdout
    file = written(text)
    finding, applied = replay(file.trace, open_target(FAULT))
    assert (applied, finding.kind) == (file.trace, ("free", kind[2]))
    assert replay(file.trace, open_target("impl")) == (None, file.trace)


def written(text: str) -> TraceFile:
    """The trace whose place is printed."""
    return read_trace(Path(re.search(r"^trace:  (.*)$", text, re.MULTILINE)[1]))


@pytest.mark.parametrize(
    ("name", "longest"), [("usage-counts-null-block", 0), ("table-entries-swapped", 3), ("reset-while-in-use", 4)]
)
@pytest.mark.slow
def test_a_planted_fault_is_found_and_shrunk(name, longest):
    error = raised_by(kv_cache_machine(f"fault:{name}", shapes=st.just(SMALL)), max_examples=300)
    assert len(error.trace.operations) <= longest
    assert replay(error.trace, open_target(f"fault:{name}"))[0] == error.finding
    assert replay(error.trace, open_target("impl"))[0] is None


def raised_by(machine: Any, **changed: Any) -> FindingError:
    """The first of the errors that Hypothesis reports."""
    with pytest.raises((FindingError, ExceptionGroup)) as caught:
        case_of(machine, **changed)("runTest").runTest()
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert isinstance(error, FindingError)
    return error


def test_causes_are_told_apart_by_class():
    names = ("usage-counts-null-block", "table-entries-swapped")
    machines = [kv_cache_machine(f"fault:{name}", attention=("full",)) for name in names]
    errors = [raised_by(machine, max_examples=300, phases=[Phase.generate]) for machine in machines]
    assert [type(error).__name__ for error in errors] == ["usage_at_start", "tables_at_Allocate"]


@pytest.mark.slow
def test_a_saved_failure_comes_first_the_next_time(tmp_path):
    database = DirectoryBasedExampleDatabase(tmp_path / "examples")
    machine = kv_cache_machine("fault:table-entries-swapped", shapes=st.just(SMALL))
    first = raised_by(machine, database=database, derandomize=False, phases=[Phase.generate])  # what is saved is drawn
    again = raised_by(machine, database=database, derandomize=False, phases=[Phase.reuse])
    assert (again.finding, again.trace) == (first.finding, first.trace)


def test_a_blob_and_a_seed_repeat_a_failure():
    machine = kv_cache_machine("fault:usage-counts-null-block")
    text = text_of_failure(machine, print_blob=True)
    version, blob = re.search(r"@reproduce_failure\('([^']+)', (b'[^']+')\)", text).groups()
    decorated = reproduce_failure(version, eval(blob))(kv_cache_machine("fault:usage-counts-null-block"))
    with pytest.raises(FindingError, match="differ in `usage` at construction"):
        run_state_machine_as_test(decorated, settings=settings(database=None))
    traces = [
        raised_by(
            seed(7)(kv_cache_machine(FAULT, attention=("full",))), derandomize=False, phases=[Phase.generate]
        ).trace
        for _ in range(2)
    ]
    assert traces[0] == traces[1]


def test_files_that_cannot_be_written_are_said_and_do_no_harm(tmp_path):
    (tmp_path / "taken").write_text("")
    text = text_of_failure(kv_cache_machine("fault:usage-counts-null-block", folder=tmp_path / "taken" / "below"))
    assert f"nothing was written to {tmp_path / 'taken' / 'below'}: " in text
    assert "differ in `usage`" in text
    text = text_of_failure(kv_cache_machine("fault:usage-counts-null-block", folder=None))
    assert "no files were asked for" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


# Targets without a name that a shell knows.


def in_python(text: str, **names: object) -> Any:
    """The test that is printed where no command can be."""
    code = text.split("In Python:\n\n", 1)[1].split("\nFailing test case", 1)[0]
    code = "\n".join(line.removeprefix("    ") for line in code.splitlines())
    place: dict[str, Any] = dict(names)
    exec(code, place)
    (test,) = (value for name, value in place.items() if name.startswith("test_"))
    return test


def make_faulty() -> Target:
    return open_target("fault:usage-counts-null-block")


@pytest.mark.parametrize("kind", ["function", "object"])
def test_a_target_that_no_shell_can_name_is_repeated_in_python(kind):
    given: Any = make_faulty if kind == "function" else make_faulty()
    text = text_of_failure(kv_cache_machine(given))
    said = "the function make_faulty" if kind == "function" else "an object"
    assert f"no shell command repeats it: the target was given as {said}. In Python:" in text
    assert "blockproof replay" not in text
    test = in_python(text, make_faulty=make_faulty, target=given)
    with pytest.raises(AssertionError, match="differ in `usage`"):
        test()
    assert replay_text(next(Path("findings").glob("*.json")).read_text(), "impl") is None


def test_of_a_core_that_was_changed_in_this_process_no_command_is_printed(monkeypatch):
    build = Binding.manager

    def with_a_mistake(self: Binding, shape: Shape) -> Any:
        manager = build(self, shape)
        FAULTS["usage-counts-null-block"].plant(manager)
        return manager

    with monkeypatch.context() as changed:
        changed.setattr(Binding, "manager", with_a_mistake)
        text = text_of_failure(kv_cache_machine("impl"))
        assert "no shell command repeats it: a new process shows nothing, so something has changed the target" in text
        test = in_python(text)
        with pytest.raises(AssertionError, match="differ in `usage`"):
            test()
    test()


# Wrong arguments.


@pytest.mark.parametrize(
    ("target", "options", "error", "said"),
    [
        ("no such target", {}, ValueError, "unknown target"),
        (3, {}, TypeError, "expected a target, got a int without 'name'"),
        ("impl", {"attention": ("full", "sidling")}, ValueError, "unknown attention 'sidling': choose from full, mla"),
        ("impl", {"attention": ()}, ValueError, "no attention: choose from full, mla"),
    ],
)
def test_what_is_wrong_at_once_is_said_at_once(target, options, error, said):
    with pytest.raises(error, match=re.escape(said)):
        kv_cache_machine(target, **options)


def test_a_target_is_opened_by_the_first_test_and_only_once():
    opened = []

    def make() -> Recording:
        opened.append(Recording())
        return opened[-1]

    machine = kv_cache_machine(make)
    assert opened == []
    assert run(machine, max_examples=3).wasSuccessful()
    assert len(opened) == 1
    ((_, text),) = run(kv_cache_machine("no_such_module:make"), max_examples=3).errors
    assert "no_such_module" in text


# The strategy of shapes.


@pytest.mark.parametrize("attention", [("full",), ("sliding+mamba", "chunked")])
def test_shapes_are_of_the_attention_asked_for(attention):
    @settings(max_examples=30, database=None, derandomize=True)
    @given(shape=shapes(attention))
    def test(shape: Shape) -> None:
        assert tuple(group.kind for group in shape.groups) in [ATTENTION[name] for name in attention]
        assert open_target("impl").start(shape)[0] == Done()
        assert eval(repr(shape), vars(ops)) == shape

    test()


def test_shapes_may_be_given():
    target = Recording()
    assert run(kv_cache_machine(target, shapes=st.just(SMALL)), max_examples=5).wasSuccessful()
    assert set(target.shapes) == {SMALL}


# Under pytest.


def test_pytest_collects_it_and_shows_steps_and_statistics(tmp_path):
    (tmp_path / "test_cores.py").write_text(
        "from blockproof.fuzz import kv_cache_machine\n"
        "from hypothesis import settings\n"
        "settings.register_profile('quick', settings(max_examples=20, database=None, derandomize=True))\n"
        "settings.load_profile('quick')\n"
        "TestClean = kv_cache_machine('impl').TestCase\n"
        "TestFaulty = kv_cache_machine('fault:usage-counts-null-block').TestCase\n"
    )
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hypothesis-show-statistics", "test_cores.py"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "blockproof replay findings/usage_start_" in done.stdout
    assert re.search(r"E +state\.start\(shape=Shape\(groups=", done.stdout)
    assert re.search(r"\d\.\d\d%, groups: full", done.stdout)


def test_once_a_run_is_over_nothing_is_asked_any_more():
    """As after a known deviation, which leaves the state undefined."""
    target = Recording()

    class Over(kv_cache_machine(target)):  # type: ignore[misc]  # made when it is asked for
        @property
        def is_over(self) -> bool:
            return len(self.run.operations) >= 3 or super().is_over

    assert run(Over, max_examples=5).wasSuccessful()
    assert 0 < len(target.asked) <= 4 * len(target.shapes)
