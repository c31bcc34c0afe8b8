"""Bisecting releases: which are tried, what is concluded, and what is said where nothing can be."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.oracle_names import MODEL_FREE, ORACLES
from blockproof.fuzz.opening.commands import Ran
from blockproof.fuzz.opening.environments import InstallError
from blockproof.fuzz.opening.targets import open_here
from blockproof.fuzz.releases import bisect_releases, versions
from blockproof.fuzz.releases.bisect import (
    BisectError,
    BisectQuestion,
    State,
    TurningPoint,
    changes,
    judges_of,
    observe,
    question_about,
    search,
)
from blockproof.fuzz.releases.versions import candidates, published, version_key
from blockproof.fuzz.targets.base import TargetLostError, TargetUnavailableError
from blockproof.fuzz.targets.family import Family
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, read_trace, write_trace
from blockproof.model.ops import (
    Allocate,
    Failed,
    Free,
    Group,
    Preempt,
    ReadTable,
    Shape,
    StepStart,
    Submit,
    TakeStats,
)

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
OPERATIONS = (Submit("a", (0,)), Allocate("a", 2), Free("a"))
FAULT, OTHER_FAULT, MISSING = "fault:free-order-reversed", "fault:usage-counts-null-block", "missing"
FINDING = FoundWhat("free", "Free", "")
KNOWN = tuple(f"1.{minor}.0" for minor in range(9))


class Engine:
    """Releases that are all good until told otherwise, and how they were treated."""

    def __init__(self):
        self.cores = {}
        self.absent = set()
        self.opened = []
        self.installed = []
        self.alive = self.most_alive = 0
        self.lock = threading.Lock()

    def open(self, spec, *, isolate):
        assert isolate
        self.opened.append(spec)
        core = self.cores.get(spec, "impl")
        if core == MISSING:
            raise TargetUnavailableError(f"{spec}: its\nimport failed")
        target = open_here(core)
        with self.lock:
            self.alive += 1
            self.most_alive = max(self.alive, self.most_alive)
        close = target.close

        def closed():
            close()
            with self.lock:
                self.alive -= 1

        target.close = closed  # type: ignore[method-assign]
        return target

    def interpreter_of(self, spec):
        if spec in self.absent:
            raise TargetUnavailableError(f"{spec} is not installed")

    def install(self, spec, say, check):
        self.installed.append(spec)
        say("installing")
        if self.cores.get(spec) == "not to be had":
            raise InstallError(f"downloading {spec} failed: no such version")
        self.absent.discard(spec)

    def are(self, core, *minors):
        self.cores |= {f"engine==1.{minor}.0": core for minor in minors}


@pytest.fixture
def engine(monkeypatch):
    def never():
        raise AssertionError

    fake, family = Engine(), Family("engine", never, releases=KNOWN)
    monkeypatch.setattr(versions, "families", lambda: MappingProxyType({"engine": family}))
    monkeypatch.setattr(versions, "family_of", lambda spec: family if family.claims(spec) else None)
    monkeypatch.setattr(bisect_releases, "open_target", fake.open)
    monkeypatch.setattr(bisect_releases, "interpreter_of", fake.interpreter_of)
    monkeypatch.setattr(bisect_releases, "install", fake.install)
    return fake


@pytest.fixture
def trace(tmp_path):
    return written(tmp_path / "trace.json")


def written(path, finding=FINDING, target="engine==1.5.0"):
    write_trace(TraceFile(Trace(SHAPE, OPERATIONS), target, finding), path)
    return str(path)


def told(trace, span, any_finding=False, oracles=None, **choices):
    """Exit code, the table by release, and the lines below it."""
    file = read_trace(Path(trace))
    question = question_about(file, any_finding, oracles, MODEL_FREE)
    wanted = bisect_releases.Range(span, **choices)
    found = bisect_releases.bisect_releases(file.target, question, wanted, lambda step: None)
    return found.code, *read("\n".join(found.lines()))


def printed(capsys, *arguments):
    """The same of the command."""
    code = cli.main(["bisect", *arguments])
    return code, *read(capsys.readouterr().out)


def read(text):
    lines = text.splitlines()
    rows = {line.split()[0]: line for line in lines if line.startswith("engine==")}
    return rows, lines[len(rows) + 1 :]


def test_names_the_first_release_that_fails_without_trying_all(engine, trace, capsys):
    engine.are(FAULT, 6, 7, 8)
    code, rows, said = printed(capsys, trace, "--releases", "1.0.0..1.8.0", "--jobs", "1")
    assert (code, said) == (0, ["first fails in engine==1.6.0 (the last that does not: engine==1.5.0)"])
    assert len(engine.opened) == len(set(engine.opened)) == len(rows) == 5
    assert rows["engine==1.6.0"].split()[1:5] == ["fails", "3", "of", "3"]
    assert rows["engine==1.6.0"].endswith("free at Free")
    assert "does not fail" in rows["engine==1.5.0"]


def test_every_option_reaches_the_search(engine, trace, capsys, monkeypatch):
    asked = []

    def noted(target, question, wanted, say):
        asked.append((target, wanted, question.kind, question.oracles))
        raise BisectError("not now", 3)

    monkeypatch.setattr(bisect_releases, "bisect_releases", noted)
    words = ["--family", "engine", "--all", "--patches", "--no-install", "--jobs", "5", "--any", "--oracle", "shadow"]
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0", *words]) == 3
    assert capsys.readouterr().err == "blockproof: not now\n"
    wanted = bisect_releases.Range("1.0.0..1.8.0", "engine", every=True, patches=True, installs=False, jobs=5)
    assert asked == [("engine==1.5.0", wanted, None, ("shadow",))]
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0"]) == 3
    assert asked[1:] == [("engine==1.5.0", bisect_releases.Range("1.0.0..1.8.0"), ("free", "Free"), ORACLES)]


def test_names_the_release_in_which_it_no_longer_fails(engine, trace):
    engine.are(FAULT, 0, 1, 2)
    code, _, said = told(trace, "1.0.0..1.8.0")
    says = "first release in which it no longer fails: engine==1.3.0 (the last that does: engine==1.2.0)"
    assert (code, said) == (0, [says])


def test_ends_that_agree_tell_nothing(engine, trace):
    engine.are(FAULT, 4)
    code, rows, said = told(trace, "1.0.0..1.8.0")
    assert (code, len(rows)) == (1, 2)
    assert said[0].startswith("it does not fail at either end")
    assert "--all" in said[0]


def test_all_tells_every_change_where_they_are_several(engine, trace):
    engine.are(FAULT, 2, 3, 7)
    code, rows, said = told(trace, "engine==1.0.0..1.8.0", every=True)
    assert (code, len(rows)) == (0, 9)
    assert said == [
        "it changes 4 times:",
        "first fails in engine==1.2.0 (the last that does not: engine==1.1.0)",
        "first release in which it no longer fails: engine==1.4.0 (the last that does: engine==1.3.0)",
        "first fails in engine==1.7.0 (the last that does not: engine==1.6.0)",
        "first release in which it no longer fails: engine==1.8.0 (the last that does: engine==1.7.0)",
    ]


def test_what_is_not_observed_is_left_out_and_named_where_it_matters(engine, trace):
    engine.are(FAULT, 6, 7, 8)
    engine.are(MISSING, 0, 4, 5)
    engine.absent.add("engine==1.8.0")
    engine.cores["engine==1.8.0"] = "not to be had"
    code, rows, said = told(trace, "1.0.0..1.8.0")
    assert code == 0
    assert said == [
        "first fails in engine==1.6.0 (the last that does not: engine==1.3.0); "
        "or in one between, where it could not be seen: engine==1.4.0, engine==1.5.0"
    ]
    assert "not observed" in rows["engine==1.0.0"]
    assert rows["engine==1.0.0"].endswith("engine==1.0.0: its import failed")
    assert rows["engine==1.8.0"].endswith("downloading engine==1.8.0 failed: no such version")


def test_another_finding_hides_what_would_follow(engine, trace):
    engine.are(OTHER_FAULT, 3, 4)
    engine.are(FAULT, 5, 6, 7, 8)
    _, rows, said = told(trace, "1.0.0..1.8.0")
    assert "another finding" in rows["engine==1.4.0"]
    assert said[0].endswith("could not be seen: engine==1.3.0, engine==1.4.0")
    _, _, said = told(trace, "1.0.0..1.8.0", any_finding=True, oracles=("lockstep",))
    assert said == ["first fails in engine==1.3.0 (the last that does not: engine==1.2.0)"]


def test_any_finding_counts_under_every_oracle_that_needs_no_model(engine, tmp_path, capsys):
    trace = written(tmp_path / "bare.json", None)
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0"]) == 2
    assert "add --any" in capsys.readouterr().err
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0", "--any", "--json"]) == 1
    assert set(json.loads(capsys.readouterr().out)["oracles"]) == {"shadow", "contract", "liveness"}


def test_nothing_is_told_if_no_two_releases_can_be_observed(engine, trace):
    engine.are(MISSING, 0, 1, 2, 3, 5, 6, 7, 8)
    code, _, said = told(trace, "1.0.0..1.8.0")
    assert (code, said) == (3, ["fewer than two releases could be observed, so nothing is told"])
    assert told(trace, "1.0.0..1.8.0", every=True)[0] == 0
    engine.are(MISSING, 4)
    assert told(trace, "1.0.0..1.8.0", every=True)[0] == 3


def test_what_is_missing_is_installed_unless_it_must_not(engine, trace):
    engine.absent = {f"engine==1.{minor}.0" for minor in (0, 3, 8)}
    code, rows, _ = told(trace, "1.0.0..1.8.0", every=True, installs=False)
    assert (code, engine.installed) == (0, [])
    assert "not observed" in rows["engine==1.3.0"]
    code, rows, _ = told(trace, "1.0.0..1.8.0", every=True)
    assert engine.installed == ["engine==1.0.0", "engine==1.3.0", "engine==1.8.0"]
    assert "does not fail" in rows["engine==1.3.0"]


def test_no_more_targets_than_jobs_at_a_time(engine, trace, monkeypatch):
    together = threading.Barrier(3)
    observed = observe

    def in_threes(question, open_target):
        together.wait(60)  # breaks unless three are at it
        return observed(question, open_target)

    monkeypatch.setattr(bisect_releases, "observe", in_threes)
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0", "--all", "--jobs", "3"]) == 0
    assert engine.most_alive <= 3
    assert (len(engine.opened), engine.alive) == (9, 0)


def test_a_bug_of_ours_in_a_thread_is_not_taken_for_an_answer(engine, trace, monkeypatch):
    def broken(question, open_target):
        raise KeyError("a bug")

    monkeypatch.setattr(bisect_releases, "observe", broken)
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0"]) == 70


def test_json_is_one_document(engine, trace, capsys):
    engine.are(FAULT, 5, 6, 7, 8)
    engine.are(MISSING, 4)
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (change,) = document["changes"]
    assert (change["begins"], change["before"], change["after"]) == (True, "engine==1.3.0", "engine==1.5.0")
    assert (change["not_observed"], change["not_tried"]) == (["engine==1.4.0"], [])
    assert document["kind"] == ["free", "Free"]
    states = {row["release"]: row["state"] for row in document["releases"]}
    assert (states["engine==1.5.0"], states["engine==1.4.0"]) == ("fails", "not observed")


def test_what_is_known_at_ctrl_c_is_told(engine, trace, capsys, monkeypatch):
    opened, end = engine.open, threading.Event()

    def interrupting(spec, *, isolate):
        if len(engine.opened) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            end.wait()  # a target that never answers must not be waited for
        return opened(spec, isolate=isolate)

    monkeypatch.setattr(bisect_releases, "open_target", interrupting)
    engine.are(FAULT, 8)
    code, rows, said = printed(capsys, trace, "--releases", "1.0.0..1.8.0", "--jobs", "1")
    end.set()
    assert (code, said) == (130, ["interrupted"])
    assert set(rows) == {"engine==1.0.0", "engine==1.8.0"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "write either --releases A..B or --git GOOD..BAD"),
        (("--releases", "1.0.0..1.8.0", "--git", "a..b"), "write either"),
        (("--releases", "1.0.0"), "write A..B, as in 1.0.0..1.8.0"),
        (("--releases", "1.0.0.."), "write A..B, as in 1.0.0..1.8.0"),
        (("--releases", "one..two"), "write A..B, as in 1.0.0..1.8.0"),
        (("--releases", "1.8.0..1.0.0"), "write the older one first"),
        (("--releases", "1.0..1.0.0"), "write the older one first"),
        (("--releases", "other==1.0.0..1.8.0"), "no family 'other'"),
        (("--releases", "1.0.0..1.8.0", "--family", "other"), "no family 'other'"),
        (("--releases", "1.0.0..1.8.0", "--oracle", "taste"), "'taste' is unknown"),
    ],
)
def test_wrong_arguments_are_one_line_with_a_remedy(engine, trace, capsys, arguments, says):
    assert cli.main(["bisect", trace, *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert says in said


def test_a_trace_of_no_release_needs_the_name_of_a_family(engine, tmp_path, capsys):
    trace = written(tmp_path / "other.json", target="impl")
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0"]) == 2
    assert "add --family and one of engine" in capsys.readouterr().err
    assert cli.main(["bisect", trace, "--releases", "1.0.0..1.8.0", "--family", "engine"]) == 1


def test_versions_are_ordered_by_age_and_the_ends_are_kept():
    ordered = ["1.9", "1.10.0.dev3", "1.10.0a1", "1.10.0rc2", "1.10", "1.10.0.post1", "1.10.1", "2.0"]
    assert sorted({*ordered}, key=version_key) == ordered
    family = Family("engine", lambda: None, releases=("1.8.0", "1.9.2", "1.10.0", "1.11.0", "1.12.0"))
    assert candidates(family, "1.9.0", "1.11") == ("1.9.0", "1.9.2", "1.10.0", "1.11")
    more = ("1.9.1", "1.9.2", "1.11.1", "1.8.9", "1.10.3")
    assert candidates(family, "1.9.0", "1.11", more) == ("1.9.0", "1.9.1", "1.9.2", "1.10.0", "1.10.3", "1.11")


def test_patches_are_asked_of_pip(engine, trace, capsys, monkeypatch):
    def answers(code, out, err=""):
        monkeypatch.setattr(versions, "run", lambda command, **options: Ran(code, out, err))

    family = Family("engine", lambda: None)
    answers(0, "engine (1.3.1)\nAvailable versions: 1.3.1, 1.3.0, 1.2.5, 1.0.0\n")
    assert published(family) == ("1.3.1", "1.3.0", "1.2.5", "1.0.0")
    code, rows, _ = told(trace, "1.2.0..1.4.0", every=True, patches=True)
    names = ["engine==1.2.0", "engine==1.2.5", "engine==1.3.0", "engine==1.3.1", "engine==1.4.0"]
    assert (code, list(rows)) == (0, names)
    answers(1, "", "WARNING: again\nERROR: No matching distribution found for engine\n")
    assert cli.main(["bisect", trace, "--releases", "1.2.0..1.4.0", "--patches"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "(ERROR: No matching distribution found for engine); leave out --patches" in said


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_a_change_is_found_wherever_it_is_and_whatever_cannot_be_seen(jobs):
    for count in range(1, 8):
        for first in range(count + 1):
            for blind in range(2**count):
                truth = [None if blind >> place & 1 else place >= first for place in range(count)]
                looked = []

                def look(places, truth=truth, looked=looked):
                    assert len(places) <= max(jobs, 2)
                    looked.extend(places)
                    return {place: truth[place] for place in places}

                found = list(changes(search(count, look, jobs)))
                assert len(looked) == len(set(looked))
                assert found == list(changes(dict(enumerate(truth))))


def test_binary_search_looks_at_few_places():
    looked = []

    def look(places):
        looked.extend(places)
        return {place: place >= 700 for place in places}

    known = search(1000, look)
    assert list(changes(known)) == [TurningPoint(699, 700, True, (), ())]
    assert len(looked) <= 2 + 10


@pytest.mark.parametrize(
    ("observable", "oracles"),
    [
        ("S7", ("contract",)),
        ("S12", ("contract",)),
        ("L1", ("liveness",)),
        ("corruption", ("shadow",)),
        ("free", ("lockstep", "shadow")),
        ("outcome", ("lockstep", "shadow")),
        ("crash", ("the default",)),
    ],
)
def test_a_finding_is_looked_for_with_the_oracles_that_make_it(observable, oracles):
    assert judges_of(observable, ("the default",)) == oracles


class Odd:
    """A target over our core that can be made to misbehave."""

    name = "odd"

    def __init__(self, start=None, step=None, lacks=()):
        self.core = open_here("impl")
        self.start = start or self.core.start
        self.step = step or self.core.step
        self.lacks = lacks
        self.closed = False

    def close(self):
        self.closed = True


def raising(error):
    def fail(argument):
        raise error

    return fail


@pytest.mark.parametrize(
    ("operations", "lacks", "applied", "why"),
    [
        ((*OPERATIONS[:2], ReadTable("a"), TakeStats(), OPERATIONS[2]), ("ReadTable", "TakeStats"), 3, None),
        ((*OPERATIONS[:2], ReadTable("a")), ("ReadTable",), 2, "operation 2, ReadTable a: it has no equivalent of"),
        ((*OPERATIONS[:2], Preempt("a"), OPERATIONS[2]), ("Preempt",), 3, "operation 2, Preempt a: it has no"),
        ((*OPERATIONS[:2], StepStart(), OPERATIONS[2]), ("StepStart",), 3, "operation 2, StepStart: it has no"),
        ((Submit("a", (0,)), Allocate("a", 1, lookahead=1), Free("a")), ("Allocate.lookahead",), 3, "some of Alloc"),
        ((Submit("a", (0,)), Allocate("a", 1), Free("a")), ("Allocate.lookahead",), 3, None),
        (
            (*OPERATIONS[:2], Allocate("a", 1), Free("a")),
            (),
            3,
            "operation 2, Allocate a, new_tokens=1, makes no sense",
        ),
    ],
)
def test_a_trace_of_which_a_part_was_applied_has_not_passed(operations, lacks, applied, why):
    answer = observe(BisectQuestion(Trace(SHAPE, operations), ("S7", "Free"), ("contract",)), lambda: Odd(lacks=lacks))
    assert answer.operations == applied
    if why is None:
        assert (answer.state, answer.why) == (State.PASSES, "")
    else:
        assert answer.state is State.UNSEEN
        assert why in answer.why
        assert answer.why.startswith(f"{applied} of {len(operations)} operations were applied: ")


def test_a_core_of_another_shape_has_not_passed():
    shape = replace(SHAPE, scheduler_block_size=2, retention_interval=2)
    question = BisectQuestion(Trace(shape, OPERATIONS), ("S7", "Free"), ("contract",))
    answer = observe(question, lambda: Odd(lacks=("Shape.retention_interval",)))
    assert answer.state is State.UNSEEN
    assert answer.why.startswith("cannot be built with the shape of the trace: it has no equivalent of Shape.ret")


@pytest.mark.parametrize(
    ("target", "state", "why"),
    [
        (Odd(), State.PASSES, ""),
        (Odd(start=lambda shape: (Failed("ValueError"), None)), State.UNSEEN, "refuses to be built: ValueError"),
        (Odd(start=raising(TargetUnavailableError("gone"))), State.UNSEEN, "gone"),
        (Odd(step=raising(TargetLostError("crash", "died"))), State.OTHER, "crash at Submit: died"),
    ],
)
def test_what_is_not_observed_has_not_passed(target, state, why):
    question = BisectQuestion(Trace(SHAPE, OPERATIONS), ("S7", "Free"), ("contract",))
    answer = observe(question, lambda: target)
    assert (answer.state, answer.why) == (state, why)
    assert target.closed


def test_a_trace_of_which_nothing_applies_is_not_observed():
    question = BisectQuestion(Trace(SHAPE, OPERATIONS[1:2]), None, ("contract",))
    answer = observe(question, Odd)
    assert (answer.state, answer.operations) == (State.UNSEEN, 0)


def test_help_has_an_example():
    done = subprocess.run([sys.executable, "-m", "blockproof.fuzz.cli", "bisect", "-h"], capture_output=True, text=True)
    assert "Example: blockproof bisect" in done.stdout
