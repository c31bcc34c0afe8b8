"""Random mutants: what may be changed, what is drawn, how it is planted, and what counts as found."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from blockproof.fuzz.adapters import vllm
from blockproof.fuzz.adapters.vllm.mutable import SURVIVORS
from blockproof.fuzz.faults import FAULTS, Part
from blockproof.fuzz.mutation import stages
from blockproof.fuzz.mutation.hunting import Hunted, hunt_all
from blockproof.fuzz.mutation.places import Mutant, Source, changed_lines, draw_mutants, number_of_places
from blockproof.fuzz.mutation.report import HuntAsked, MutantsDone, Survivors, from_kept, headline, kept_text
from blockproof.fuzz.mutation.serve import Reached
from blockproof.fuzz.mutation.stages import Answers, Budget, Stage, hunt
from blockproof.fuzz.mutation.subject import Subject, dependents, read_again, subject_of
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.targets import open_calculator_here, open_here
from blockproof.fuzz.targets.base import TargetLostError
from blockproof.fuzz.targets.family import Mutable

RELEASE = "vllm==0.23.0"
needs_tool = pytest.mark.skipif(find_spec("cosmic_ray") is None, reason="pip install '/path/to/blockproof[mutation]'")

TEXT = '''"""A module."""
from typing import overload

LIMIT: int | None = 3


@overload
def pick(a: int) -> int: ...


def pick(a: int, b: int | None = None) -> "int | None":
    """Says 1 + 1."""
    if a > LIMIT:
        logger.warning("more than %d", LIMIT + 1)
        raise ValueError("too large: " + str(a + 1))
    total = min(a, b or 2)
    names[
        a
    ] = call(
        a, total
    )
    return total
'''


@needs_tool
def test_annotations_docstrings_and_overloads_are_no_places() -> None:
    source = Source(TEXT)
    places = {(place.line, place.kind) for place in source.places()}
    assert not [line for line, _ in places if line in (1, 2, 7, 8, 12)]
    assert {kind for line, kind in places if line == 4} == {"NumberReplacer"}
    assert not [kind for line, kind in places if line == 11]
    assert {(13, "ReplaceComparisonOperator"), (13, "AddNot"), (15, "RemoveStatement"), (16, "MinMax")} <= places
    assert {(17, "RemoveStatement"), (19, "ExchangeArguments"), (16, "ReplaceOrWithAnd")} <= places
    assert {place.line for place in source.places() if place.text} == {14, 15}
    assert {place.line for place in source.places() if place.text and place.kind == "ReplaceBinaryOperator"} == {14, 15}
    assert source.function_at(16) == "pick"
    assert source.function_at(4) == "<module>"
    assert source.lines_of(13) == (13, 13)
    assert source.lines_of(19) == (17, 21)


@needs_tool
def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    sources = {"one": TEXT, "other": TEXT.replace("pick", "choose")}
    drawn = draw_mutants(sources, 10, 1)
    assert drawn == draw_mutants(dict(reversed(sources.items())), 10, 1)
    assert drawn != draw_mutants(sources, 10, 2)
    assert len({one.place for one in drawn}) == 10
    every = draw_mutants(sources, 10_000, 3)
    places = number_of_places(sources)
    assert places["one"] == places["other"] > 10
    assert len(every) <= sum(places.values())
    for one in every:
        compile(one.source, one.module, "exec")
        assert one.source.count("\n") == sources[one.module].count("\n")  # lines keep their numbers
        assert (one.before, one.after) == changed_lines(sources[one.module], one.source)
        assert one.before != one.after


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Three modules: one that is changed, one that has something of it, one that has nothing of it."""
    folder = tmp_path / "changeable"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "base.py").write_text("class Base:\n    def size(self):\n        return 1\n")
    (folder / "user.py").write_text("from .base import Base\n\n\nclass User(Base):\n    pass\n")
    (folder / "alone.py").write_text("STATE = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("user", "alone"):
        import_module(f"changeable.{name}")
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "changeable"]:
        del sys.modules[name]


def test_a_changed_source_is_read_with_what_depends_on_it_and_nothing_is_written(package: Path) -> None:
    alone = sys.modules["changeable.alone"]
    before = {path: path.read_bytes() for path in package.rglob("*.py")}
    names = dependents(["changeable.base"], "changeable")
    assert names == ["changeable.base", "changeable.user"]
    read_again(names, "changeable.base", before[package / "base.py"].decode().replace("1", "2"))
    assert import_module("changeable.user").User().size() == 2
    assert import_module("changeable.alone") is alone
    assert {path: path.read_bytes() for path in package.rglob("*.py")} == before
    with pytest.raises(ZeroDivisionError):
        read_again(dependents(["changeable.base"], "changeable"), "changeable.base", "1 / 0")


def test_lines_that_run_are_told_apart_from_those_that_do_not(package: Path) -> None:
    (package / "steps.py").write_text("def steps(many):\n    if many:\n        return 2\n    return 1\n")
    steps = import_module("changeable.steps")
    with Reached({steps.__file__: "changeable.steps"}) as reached:
        assert steps.steps(0) == steps.steps(0) == 1
    assert reached.lines == {("changeable.steps", 2), ("changeable.steps", 4)}


SMALL = Budget(operations=400, cases=3)


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers(open_calculator_here("impl"), 1, SMALL.cases)


def hunted(answers: Answers, target: str = "impl", calculator: str = "impl") -> stages.Fate:
    core = open_here(target)
    chosen = [stage for stage in SMALL.stages(core) if " alone" not in stage.name]
    before = {stage.name: frozenset() for stage in chosen}
    return hunt(core, open_calculator_here(calculator), answers, chosen, before)


def test_a_core_without_a_mistake_survives_every_stage(answers: Answers) -> None:
    fate = hunted(answers)
    assert fate.by == fate.finding == ""
    assert fate.operations > 2 * 400
    assert fate.cases == 2 * 3


def test_a_line_that_runs_in_few_types_is_tried_longer_in_these() -> None:
    alone = [stage for stage in SMALL.stages(open_here("impl")) if stage.is_alone]
    assert [(one.name, one.count, one.attention) for one in SMALL.further(alone[1:3])] == [
        (f"{one.name}, longer", 200, one.attention) for one in alone[1:3]
    ]
    assert not SMALL.further(alone)
    assert not SMALL.further([Stage("lockstep", 400, ("full",))])


def test_a_wrong_core_and_wrong_arithmetic_are_found(answers: Answers) -> None:
    fate = hunted(answers, target="fault:free-order-reversed")
    assert fate.by == "lockstep"
    assert fate.finding.startswith("lockstep: free at ")
    assert 0 < fate.operations < 400
    fault = next(name for name, fault in FAULTS.items() if fault.part == Part.CONFIGURATION)
    fate = hunted(answers, calculator=f"fault:{fault}")
    assert fate.by == stages.CONFIGURATIONS


def test_what_the_core_shows_as_it_stands_is_no_finding(answers: Answers) -> None:
    core = open_here("fault:eviction-does-nothing")
    stage = Stage("contract", 2_000, ("full",), oracles=("contract",))
    learned = hunt(core, open_calculator_here("impl"), answers, [stage], {"contract": frozenset()})
    assert learned.by == "contract"
    known = {"contract": learned.kinds["contract"]}
    again = hunt(core, open_calculator_here("impl"), answers, [stage], known)
    assert again.by == "" or tuple(again.kinds["contract"]) != tuple(known["contract"])


def test_a_call_without_end_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "OPERATION_S", 0.05)

    def forever(operation: object) -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue

    core = stages.Bounded(SimpleNamespace(step=forever, name="endless"), nullcontext())
    assert core.name == "endless"
    with pytest.raises(TargetLostError, match=r"hang: no answer within 0.05 s"):
        core.step(None)


ENTRY = """[[survivor]]
module = "engine.pool"
function = "free"
line = "{line}"
changed = "{changed}"
class = "{kind}"
because = "{because}"
"""


def entry(line: str = "a = 1", changed: str = "a = 2", kind: str = "equivalent", because: str = "so it is") -> str:
    return ENTRY.format(line=line, changed=changed, kind=kind, because=because)


def mutant(after: str = "a = 2", *, text: bool = False) -> Mutant:
    return Mutant("engine.pool", "free", 3, "NumberReplacer", "a = 1", after, (3, 3), text, "")


def test_survivors_are_judged_by_what_they_change() -> None:
    judged = Survivors(entry() + entry(changed="*", kind="outside"))
    assert judged.kind_of(mutant()) == "equivalent"
    assert judged.kind_of(mutant("a = 3")) == "outside"
    assert Survivors("").kind_of(mutant()) == ""
    assert Survivors("").kind_of(mutant(text=True)) == "text"
    assert [one.changed for one in judged.stale([mutant(), mutant("a = 3")])] == ["a = 2"]
    assert judged.gone({"engine.pool": "def free():\n    a = 1\n"}) == []
    assert len(judged.gone({"engine.pool": "def free():\n    a = 4\n"})) == 2


def test_an_ellipsis_stands_for_any_text_of_a_line() -> None:
    judged = Survivors(entry(line="\N{HORIZONTAL ELLIPSIS} = 1", changed="\N{HORIZONTAL ELLIPSIS} = 2"))
    assert judged.kind_of(mutant()) == judged.entries[0].kind
    assert Survivors(entry(line="b\N{HORIZONTAL ELLIPSIS} = 1")).kind_of(mutant()) == ""
    assert judged.gone({"engine.pool": "def free():\n    a = 1\n"}) == []
    assert len(judged.gone({"engine.pool": "def free():\n    a = 4\n"})) == 1
    assert judged.stale([mutant()]) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (entry(kind="lucky"), "survivor 1: class is 'lucky'"),
        (entry(because=" "), "survivor 1: it says not why"),
        ("[[survivor]]\nmodule = 'x'\n", "survivor 1: expected texts for module, function"),
        ("[other]\n", "expected tables"),
    ],
)
def test_a_wrong_file_of_survivors_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Survivors(text)


def told(*fates: tuple[Mutant, str], survivors: str = "") -> MutantsDone:
    mutable = Mutable(("engine.pool",), "engine", lambda: None, {"engine.pool": (7, 9)}, survivors)
    asked = HuntAsked("engine==1.0", len(fates), 1, 100, 10)
    done = [Hunted(one, status, "lockstep" if status == "killed" else "", "", 30, 2, 0.5) for one, status in fates]
    return MutantsDone(asked, Subject(asked.of, "engine", mutable, None), [one for one, _ in fates], done)


def test_the_report_names_each_survivor_and_fails_for_one_that_nobody_has_judged() -> None:
    result = told((mutant(), "survived"), (mutant("a = 3"), "killed"), (mutant("a = 4"), "import"), survivors=entry())
    lines = list(result.lines())
    assert result.exit_code == 0
    assert "engine.pool    2 of   3 killed; left: 1 equivalent   (its own tests: 7 of 9 others)" in lines
    assert "survived: pool.py:3 in free, equivalent: so it is" in lines
    assert headline(result.counts(["engine.pool"])).startswith(
        "2 of 3 killed (1 when imported); of 2 that are wrong 100.0"
    )
    assert told((mutant(), "survived")).exit_code == 1
    stale = told((mutant(), "killed"), survivors=entry())
    assert [one.changed for one in stale.stale] == ["a = 2"]
    assert any(line.startswith("stale: ") for line in stale.lines())


def test_a_run_goes_on_from_what_was_kept() -> None:
    result = told((mutant(), "survived"), (mutant("a = 3"), "killed"))
    assert from_kept(kept_text(result), result.asked, result.mutants) == result.hunted
    assert json.loads(kept_text(result))["total"]["killed"] == 1
    with pytest.raises(ValueError, match="not of the same run"):
        from_kept(kept_text(result), HuntAsked("engine==1.0", 2, 2, 100, 10), result.mutants)


def test_only_cores_with_an_exact_model_are_changed() -> None:
    with pytest.raises(ValueError, match="no core whose mutants can be made; write vllm"):
        subject_of("sglang==0.5.9")
    assert "blockproof.impl.pool.block_pool" in subject_of("impl").sources()
    today = subject_of("impl-today").sources()
    assert "blockproof.impl.today.states" in today
    assert "blockproof.impl.today.under_vllm" not in today, "no operation comes to it"
    assert {name.split(".")[2] for name in today} == {"today"}


def behind(subject: Subject, module: str, text: str) -> Mutant:
    """A mutant with a line behind the source of a module."""
    source = f"{subject.sources()[module]}\n{text}\n"
    return Mutant(module, "<module>", 1, "Planted", "", text, (1, 10_000), False, source)


@pytest.mark.slow
def test_in_children_a_wrong_mutant_of_our_core_is_found_and_an_equivalent_one_is_not() -> None:
    subject = subject_of("impl")
    sources = subject.sources()
    module = "blockproof.impl.pool.free_queue"
    texts = ("raise KeyError", "import os; os.abort()", "SAME = 1")
    mutants = [behind(subject, module, text) for text in texts]
    fates = {one.mutant.after: one for one in hunt_all(subject, mutants, 1, Budget(40, 1), jobs=2)}
    assert [fates[text].status for text in texts] == ["import", "killed", "survived"]
    assert fates[texts[0]].finding == "KeyError: "
    assert fates[texts[1]].finding == "SIGABRT"
    assert subject.sources() == sources


needs_release = pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")


@pytest.mark.parametrize("of", ["impl", "impl-today"])
def test_every_entry_about_a_survivor_stands_in_the_sources(of: str) -> None:
    subject = subject_of(of)
    judged = Survivors(subject.mutable.survivors)
    assert [(one.function, one.line) for one in judged.gone(subject.sources())] == []


@pytest.mark.parametrize("name", SURVIVORS)
def test_every_entry_about_a_survivor_of_a_release_stands_in_its_sources(name: str) -> None:
    if environments.find(SURVIVORS[name]) is None:
        pytest.skip(f"blockproof targets install {SURVIVORS[name]}")
    judged = Survivors((files(vllm) / name).read_text(encoding="utf-8"))
    sources = subject_of(SURVIVORS[name]).sources()
    assert [(one.function, one.line) for one in judged.gone(sources)] == []
    assert judged.entries


@pytest.mark.slow
@needs_release
def test_mutants_of_a_release_are_found_in_its_own_interpreter_and_its_files_stay() -> None:
    subject = subject_of(RELEASE)
    sources = subject.sources()
    texts = ("BlockPool.touch = None", "SAME = 1")
    mutants = [behind(subject, next(name for name in sources if "block_pool" in name), text) for text in texts]
    fates = {one.mutant.after: one for one in hunt_all(subject, mutants, 1, Budget(200, 1))}
    assert [fates[text].status for text in texts] == ["killed", "survived"]
    assert subject.sources() == sources
