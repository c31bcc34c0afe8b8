"""The catalogue of real bugs: what it says, and that each of its traces shows its bug and nothing else."""

import json
from pathlib import Path
from statistics import median

import pytest
from blockproof.fuzz.configuration.check import Judge
from blockproof.fuzz.configuration.findings import ConfigurationFinding, read_finding
from blockproof.fuzz.configuration.shrink import ask_again
from blockproof.fuzz.faults import CATALOGUED, FAULTS, REAL_MODULES, Fault, Part
from blockproof.fuzz.faults.real_bugs import bug_of, planted_bugs, real_bugs
from blockproof.fuzz.findings.oracle_names import EVERY
from blockproof.fuzz.opening.targets import open_calculator, open_target
from blockproof.fuzz.planning.shipped import QUESTIONS, REGRESSIONS, installed_regressions, is_of_real_bug
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import TraceFile, read_trace

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / REGRESSIONS
FILES = {name: f"{bug_id}-{name}.json" for bug_id, _, name in planted_bugs()}
OF_RUNS = [name for name in FILES if FAULTS[name].part != Part.CONFIGURATION]
OF_ANSWERS = [name for name in FILES if FAULTS[name].part == Part.CONFIGURATION]
MOST = 8
"""Operations of a trace."""


def file_of(name: str) -> TraceFile:
    return read_trace(FOLDER / FILES[name])


def question_of(name: str) -> ConfigurationFinding:
    return read_finding(FOLDER / QUESTIONS / FILES[name])


def judging(file: TraceFile) -> Judging:
    return Judging(file.oracles)


# The catalogue.


def test_every_fault_that_is_named_is_there_and_stands_for_one_bug() -> None:
    names = [name for _, _, name in planted_bugs()]
    assert sorted(names) == sorted(set(names))
    assert set(names) <= FAULTS.keys()
    assert list(CATALOGUED) == names
    made_for_it = [fault.name for module in REAL_MODULES for fault in vars(module).values() if isinstance(fault, Fault)]
    assert set(made_for_it) <= set(names)


def test_entries_differ_and_say_what_they_must() -> None:
    bugs = real_bugs()
    links = [bug.link for bug in bugs.values()]
    assert len(set(links)) == len(links)
    assert len({bug.title for bug in bugs.values()}) == len(bugs)
    for bug_id, bug in bugs.items():
        assert all(link.startswith("https://github.com/") for link in (bug.link, *bug.also)), bug_id
        assert bug.title, bug_id
        assert bug.wrong.endswith((".", ")")), bug_id
        assert bug.right.endswith("."), bug_id


def test_entries_stand_in_the_order_of_their_numbers() -> None:
    ids = list(real_bugs())
    assert ids[:3] == ["V01", "V02", "V03"]
    of_the_first_letter = [bug_id for bug_id in ids if bug_id.startswith("V")]
    assert ids[: len(of_the_first_letter)] == of_the_first_letter == sorted(of_the_first_letter)


@pytest.mark.parametrize("more", [{}, {"faults": ["a"], "not_planted": "why"}, {"faults": ["a"], "unknown": 1}])
def test_an_entry_has_faults_or_says_why_not(more: dict[str, object]) -> None:
    said = {"link": "https://github.com/a/b/pull/1", "title": "t", "wrong": "w", "right": "r"}
    assert bug_of(said | {"faults": ["a"]}).faults == ("a",)
    with pytest.raises(ValueError, match="an entry"):
        bug_of(said | more)


# The traces.


def test_every_fault_has_a_trace_and_every_trace_a_fault() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.json")) == sorted(FILES[name] for name in OF_RUNS)
    assert sorted(path.name for path in (FOLDER / QUESTIONS).glob("*")) == sorted(FILES[name] for name in OF_ANSWERS)


def test_the_installed_folder_is_this_one() -> None:
    assert installed_regressions().resolve() == FOLDER.resolve()
    assert is_of_real_bug(FOLDER / QUESTIONS / "any.json")
    assert not is_of_real_bug(FOLDER.parent / "any.json")


@pytest.mark.each_is_measured
@pytest.mark.parametrize("name", OF_RUNS)
def test_the_trace_shows_the_bug_and_nothing_on_the_healthy_core(name: str) -> None:
    file = file_of(name)
    assert file.target == f"fault:{name}"
    assert file.finding is not None
    assert file.oracles is not None
    assert set(file.oracles) <= set(EVERY)
    finding, _ = replay(file.trace, open_target(file.target), judging(file))
    assert finding is not None
    assert file.finding.is_shown_by(finding)
    assert replay(file.trace, open_target("impl"), judging(file)) == (None, file.trace)


def test_traces_are_short() -> None:
    sizes = {name: len(file_of(name).trace.operations) for name in OF_RUNS}
    assert median(sizes.values()) <= 6
    assert max(sizes.values()) <= MOST, sizes


@pytest.mark.parametrize("name", OF_ANSWERS)
def test_the_question_shows_the_bug_and_nothing_on_the_healthy_core(name: str) -> None:
    question = question_of(name)
    assert question.target == f"fault:{name}"
    again = ask_again(question, Judge(open_calculator(question.target)))
    assert again is not None
    assert again.kind == question.kind
    assert ask_again(question, Judge(open_calculator("impl"))) is None


# The page.


def test_the_page_and_what_it_was_made_of_have_every_entry_and_every_fault() -> None:
    text = (ROOT / "docs" / "evidence" / "real-bugs.md").read_text(encoding="utf-8")
    rows = json.loads((ROOT / "docs" / "evidence" / "real-bugs.json").read_text(encoding="utf-8"))["rows"]
    assert [row["fault"] for row in rows] == list(CATALOGUED)
    assert all(row["found"] for row in rows)
    for bug_id, bug in real_bugs().items():
        for name in bug.faults:
            assert f"]({bug.link}) | {bug.title} | `{name}` |" in text
        if bug.not_planted:
            assert f"]({bug.link}) | {bug.title} | {bug.not_planted} |" in text
        assert f"| `{bug_id}` | [" in text
    planted = sum(bool(bug.faults) for bug in real_bugs().values())
    assert f"{len(real_bugs())} entries, of which {planted} are planted, with {len(CATALOGUED)} faults" in text
