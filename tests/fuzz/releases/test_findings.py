"""Findings in released engines: written up, observed again, and told as a page."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families, family_of
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.opening import commands, environments
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases import scheduler_cases
from blockproof.fuzz.releases.findings import (
    CLASSES,
    FindingEntry,
    folder_page,
    page,
    read_entries,
    read_observations,
    read_traces,
    rule_text,
)
from blockproof.fuzz.releases.observing import observe
from blockproof.fuzz.releases.scheduler_cases import run_cases
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, write_trace
from blockproof.model.ops import Allocate, Lookup, Submit

from ..runs.test_pair import HIT, SHAPE

FOLDER = Path(__file__).parents[3] / "docs" / "evidence" / "findings"
ENTRIES = read_entries(FOLDER)
TRACES = read_traces(FOLDER, list(ENTRIES))
FAULT = "fault:touch-ignores-used-blocks"
ENTRY = FindingEntry("A title", "leak", "S1", "yes: seen", "nothing", "mend it")


@pytest.fixture
def folder(tmp_path):
    """A folder with one finding about a planted fault."""
    trace = Trace(SHAPE, (*HIT[:2], Submit("b", (0, 0, 0, 0)), Lookup("b"), Allocate("b", 1, hit=True)))
    run = ModelFreeRun(open_target(FAULT), Judging(("contract",)))
    assert run.start(trace.shape) is None
    found = [run.step(operation) for operation in trace.operations][-1]
    assert isinstance(found, Finding)
    write_trace(TraceFile(trace, FAULT, FoundWhat.of(found)), tmp_path / "mine.json")
    (tmp_path / "findings.toml").write_text(
        '[mine]\ntitle = "A title"\nclass = "leak"\nrule = "S1"\nreachable = "yes: seen"\nsees = "x"\nfix = "y"\n'
    )
    return tmp_path


# What is written up.


def test_every_finding_has_evidence_and_every_trace_a_finding():
    assert {path.stem for path in FOLDER.glob("*.json")} - {"releases", "scripts", "fixes"} == set(TRACES)
    stories = {path.parent.name for path in FOLDER.glob("*/story.json")}
    by_script = {"weights-changed-cache-kept", "chunk-before-last-not-shared", "fork-row-too-short"}
    assert all(entry.case or name in {*TRACES, *stories, *by_script} for name, entry in ENTRIES.items())
    assert all(file.finding is not None for file in TRACES.values())


def test_every_rule_that_a_finding_violates_is_told_in_a_sentence():
    for entry in ENTRIES.values():
        for rule in entry.rule.split(", "):
            assert re.match(r"\[[\w.]+\]\(.+?\): \S+ .*\.$", rule_text(rule)), rule
    assert rule_text("S99") == "S99"


def test_every_finding_was_observed_on_every_known_release():
    observed = read_observations(FOLDER)
    for name, entry in ENTRIES.items():
        for key in [name] * (name in TRACES) + [f"{name} (scheduler)"] * bool(entry.case):
            family = (name in TRACES and family_of(TRACES[name].target)) or families()["vllm"]
            assert set(observed[key]) == {family.spec(release) for release in family.releases}, key


def test_the_page_is_what_the_folder_says():
    command = "blockproof findings docs/evidence/findings --write docs/evidence/findings.md"
    written = (FOLDER.parent / "findings.md").read_text(encoding="utf-8")
    assert folder_page(FOLDER, command) == written, f"write it again: {command}"


def test_our_core_shows_none_of_the_traces_and_can_run_all_of_each_that_it_can_build():
    """Losses that releases declare are findings here: our core has none. A trace with an operation that a scheduler
    cannot ask for would show nothing whatever the core does."""
    core = open_target("impl")
    for name, file in TRACES.items():
        assert observe(ENTRIES[name], file, core) in ("nothing", "not built"), name
        finding, applied = replay(file.trace, core, Judging(("contract",)))
        possible = [one for one in file.trace.operations if family_of(file.target) is families()["vllm"]]
        assert finding is None
        assert not applied.operations or not possible or list(applied.operations) == possible, name


@pytest.mark.parametrize(
    "spec", [environment.name for environment in environments.installed(families()["vllm"])][:1] or [None]
)
@pytest.mark.slow
def test_an_installed_release_shows_what_was_recorded(spec):
    if spec is None:
        pytest.skip("no release is installed")
    observed = read_observations(FOLDER)
    core = open_target(spec)
    try:
        for name, file in TRACES.items():
            if family_of(file.target) is family_of(spec):
                assert observe(ENTRIES[name], file, core) == observed[name][spec], name
    finally:
        core.close()


# Observing.


def test_a_trace_shows_its_finding_where_it_is_and_nothing_where_it_is_not(folder):
    (file,) = read_traces(folder, ["mine"]).values()
    assert observe(ENTRY, file, open_target(FAULT)) == "shows"
    assert observe(ENTRY, file, open_target("impl")) == "nothing"


def test_recording_checking_and_the_page(folder, capsys):
    words = ["findings", str(folder), "--target", FAULT, "--target", "impl"]
    assert main(words) == 1
    assert "recorded was nothing at all" in capsys.readouterr().out
    assert main([*words, "--record"]) == 0
    assert read_observations(folder) == {"mine": {FAULT: "shows", "impl": "nothing"}}
    assert main([*words, "--times", "2", "--write", str(folder / "page.md")]) == 0
    text = (folder / "page.md").read_text()
    assert "## mine" in text
    assert f"{FAULT}: shows" in text
    recorded = json.loads((folder / "releases.json").read_text())
    recorded["mine"]["impl"] = "shows"
    (folder / "releases.json").write_text(json.dumps(recorded))
    capsys.readouterr()
    assert main(words) == 1
    assert "mine on impl: nothing, recorded was shows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a]\ntitle = 3\n", "Expected `str`"),
        ('[a]\ntitle = "t"\n', "missing required field"),
        ("not toml", "findings.toml"),
        (
            '[a]\ntitle="t"\nclass="bad luck"\nrule="r"\nreachable="no"\nsees="s"\nfix="f"\n',
            "class 'bad luck' is unknown",
        ),
    ],
)
def test_a_broken_folder_is_told_in_one_line(tmp_path, capsys, text, problem):
    (tmp_path / "findings.toml").write_text(text)
    with pytest.raises(TraceError, match=problem):
        read_entries(tmp_path)
    assert main(["findings", str(tmp_path), "--target", "impl"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_wrong_arguments_are_told(folder, capsys):
    assert main(["findings", str(folder / "nowhere")]) == 2
    assert "findings.toml" in capsys.readouterr().err
    assert main(["findings", str(folder), "--only", "yours", "--target", "impl"]) == 2
    assert "no finding is called 'yours'" in capsys.readouterr().err
    shutil.copy(folder / "findings.toml", folder / "mine.json")
    assert main(["findings", str(folder), "--target", "impl"]) == 2


def test_the_page_groups_neighbouring_releases_and_sorts_by_class():
    second = FindingEntry("B", "user-visible corruption", "S7", "no", "x", "y")
    observed = {"one": {"e==0.9": "shows", "e==0.10": "shows", "e==0.11": "nothing"}, "two": {}}
    text = page({"one": ENTRY, "two": second}, {}, observed, "command", "the end")
    assert "e==0.9 to e==0.10: shows; e==0.11: nothing" in text
    assert text.index("## two") < text.index("## one")
    assert "| [one](#one) | leak | yes | e==0.9 | e==0.10 |" in text
    assert text.endswith("the end\n")
    assert CLASSES[0] == "user-visible corruption"


def test_what_the_newest_release_shows_comes_first_and_lines_of_code_do_not_split_releases():
    failed = "not built: RuntimeError: no (split, line {})"
    observed = {"one": {"e==0.9": "shows", "e==0.10": "nothing"}, "two": {"e==0.9": "shows", "e==0.10": "shows"}}
    observed["two (scheduler)"] = {"e==0.9": failed.format(7), "e==0.10": failed.format(8)}
    entries = {"one": ENTRY, "two": FindingEntry("B", "latent", "S1", "no", "x", "y", case="c")}
    text = page(entries, {}, observed, "command", "")
    assert text.index("**In the newest release**") < text.index("[two](#two)") < text.index("**Gone from")
    assert text.index("**Gone from") < text.index("[one](#one)")
    assert text.index("## two") < text.index("## one")
    assert "scheduler run `c`: e==0.9 to e==0.10: not built: RuntimeError: no\n" in text


# The engine's own scheduler.


@pytest.fixture
def cases(monkeypatch):
    """Runs this code as the module with the cases."""

    def use(code):
        monkeypatch.setattr("blockproof.fuzz.opening.targets.interpreter_of", lambda spec: (spec, None))
        run = lambda words, **options: commands.run([sys.executable, "-c", code, *words[4:]], **options)  # noqa: E731
        monkeypatch.setattr(scheduler_cases, "run", run)
        return run_cases("vllm==0.33.0", ["a", "b", "c"])

    return use


TELL = """import json, sys
def tell(case, shown, what=''):
    print(json.dumps(dict(case=case, shown=shown, what=what)), flush=True)
"""


def test_each_case_says_what_it_shows(cases):
    code = TELL + "print('chatter'); tell('a', True); tell('b', False); tell('c', None, 'not built: no such thing')"
    assert cases(code) == {"a": "shows", "b": "nothing", "c": "not built: no such thing"}


def test_a_process_that_dies_loses_only_the_cases_it_did_not_get_to(cases):
    assert cases(TELL + "tell('a', True); sys.exit(3)") == {
        "a": "shows",
        "b": "lost: exit status 3",
        "c": "lost: exit status 3",
    }


def test_a_process_that_hangs_is_ended(cases, monkeypatch):
    monkeypatch.setattr(scheduler_cases, "DEADLINE_S", 5.0)  # long enough to get to the first case on any machine
    seen = cases(TELL + "tell('a', False); import time; time.sleep(3600)")
    assert seen == {"a": "nothing", "b": "lost: no end within 5 s", "c": "lost: no end within 5 s"}


def test_a_target_without_a_scheduler_is_told():
    with pytest.raises(TargetUnavailableError, match="no scheduler"):
        run_cases("impl", ["a"])
