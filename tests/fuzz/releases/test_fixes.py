"""Proposed fixes: tried with the script and with the oracles, recorded, and told on the page."""

import json

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.releases import fixes
from blockproof.fuzz.releases.finding_scripts import ScriptSaid, standalone
from blockproof.fuzz.releases.findings import (
    BY_SCRIPTS,
    SCRIPT,
    FindingEntry,
    Held,
    Judged,
    folder_page,
    read_fixes,
    read_observations,
    record_fix,
)
from blockproof.fuzz.releases.fixes import FIX, try_fixes, with_fix
from blockproof.fuzz.traces.files import TraceError

from .test_findings import ENTRIES, FAULT, FOLDER

SPEC = "vllm==0.33.0"
SIMULATED = ("lmdeploy==0.18.0", "sglang==0.5.23", "transformers==5.24.0")
NO_FIX_TRIED = {"appended-behind-own-blocks"}
"""Its entry says in words what would mend it."""
ENTRY = FindingEntry("A title", "leak", "S1", "yes: seen", "nothing", "mend it")
CLEAN = Judged(
    ("contract",), 10, 1, {"contract: S7 at Lookup": 2, "contract: S8 at Take": 1}, {"contract: S8 at Take": 3}, ()
)
LOUD = Judged(("contract",), 10, 1, {}, {"contract: S1 at Free": 1}, ("contract: S1 at Free",))
PLAN = Plan(1, operations=4_000, attention=("full",))


def said(monkeypatch, without="shows", fixed="nothing"):
    """What the script says without the fix and with it."""
    seen = {False: without, True: fixed}
    monkeypatch.setattr(fixes, "run_script", lambda script, spec, raises, fixed: ScriptSaid(seen[fixed], ()))


@pytest.fixture
def folder(tmp_path):
    """A folder with one finding, which has a fix and whose script is recorded to show it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / FIX).write_text("def fix():\n    pass\n")
    text = '[mine]\ntitle="t"\nclass="leak"\nrule="S1"\nreachable="yes"\nsees="x"\nfix="y"\n'
    (tmp_path / "findings.toml").write_text(f"{text}[yours]\n{text.partition(']')[2]}")
    (tmp_path / BY_SCRIPTS).write_text(json.dumps({"mine": {SPEC: "shows", "vllm==0.23.0": "nothing"}}))
    return tmp_path


# What is written.


def test_what_the_newest_release_shows_has_a_fix_that_holds_there():
    observed, recorded = read_observations(FOLDER, BY_SCRIPTS), read_fixes(FOLDER)
    shown = {name: spec for spec in (SPEC, *SIMULATED) for name, row in observed.items() if row.get(spec) == "shows"}
    assert set(with_fix(FOLDER, list(ENTRIES))) == set(recorded) == set(shown) - NO_FIX_TRIED
    for name, row in recorded.items():
        held = row[shown[name]]
        assert held.problem() == "", name
        assert bool(held.judged) is (shown[name] == SPEC), name
        assert all(one.operations >= 5_000 for one in held.judged), name


@pytest.mark.parametrize("name", with_fix(FOLDER, list(ENTRIES)))
def test_a_change_of_the_engine_stands_in_the_file_of_the_fix_and_in_the_whole_script(name):
    script, change = FOLDER / name / SCRIPT, (FOLDER / name / FIX).read_text()
    assert "def fix" not in script.read_text()
    assert script.read_text().endswith("main(case, fix)\n")
    assert change[change.index("def fix() -> None:") :] in standalone(script)


# Whether a fix holds.


@pytest.mark.slow
def test_a_fix_that_mends_holds_and_one_that_breaks_more_does_not(folder, monkeypatch):
    said(monkeypatch)
    tried = {}
    opened = {"mended": (FAULT, "impl"), "broken": ("impl", FAULT), "as it was": (FAULT, FAULT)}
    for what, (without, fixed) in opened.items():
        target = lambda fix, without=without, fixed=fixed: open_target(fixed if fix else without)  # noqa: E731
        tried[what] = try_fixes(folder, {"mine": ENTRY}, SPEC, PLAN, lambda name, held: None, target)["mine"]
    assert tried["mended"].problem() == ""
    assert tried["mended"].judged[0].without
    assert not tried["mended"].judged[0].fixed
    assert tried["as it was"].problem() == ""
    new = tried["broken"].judged[0].new
    assert new
    assert all(kind.partition(":")[0] in ("contract", "shadow", "liveness") for kind in new)
    assert new[0] in tried["broken"].problem()


@pytest.mark.parametrize(
    ("without", "fixed", "problem"),
    [
        ("nothing", "nothing", "must show the defect without the fix; it says nothing"),
        ("shows", "shows", "with the fix says shows"),
        ("shows", "failed: exit status 1", "with the fix says failed"),
        ("shows", "nothing", ""),
    ],
)
def test_the_script_must_show_the_defect_and_then_nothing(without, fixed, problem):
    held = Held(without, fixed, (CLEAN,))
    assert problem in held.problem()
    assert bool(held.problem()) == bool(problem)
    assert held.told().startswith("does not hold: " if problem else "holds. ")


def test_what_is_gone_with_the_fix_is_told():
    assert "gone with it: contract: S7 at Lookup" in Held("shows", "nothing", (CLEAN,)).told()
    assert "the oracles find more with the fix: contract: S1 at Free" in Held("shows", "nothing", (LOUD,)).told()


# What is kept, and the command.


def test_trials_are_recorded_and_stand_on_the_page(folder):
    assert read_fixes(folder) == {}
    record_fix(folder, "mine", SPEC, Held("shows", "shows", ()))
    record_fix(folder, "mine", SPEC, Held("shows", "nothing", (CLEAN,)))
    assert read_fixes(folder) == {"mine": {SPEC: Held("shows", "nothing", (CLEAN,))}}
    text = " ".join(folder_page(folder, "command").split())
    assert f"[the proposed fix](findings/mine/fix.py) on {SPEC}: holds." in text
    (folder / "fixes.json").write_text('{"mine": 3}')
    with pytest.raises(TraceError, match=r"fixes\.json"):
        read_fixes(folder)


def test_the_command_says_whether_fixes_hold(folder, monkeypatch, capsys):
    outcome = {}

    def tried(place, entries, spec, plan, on_held):
        assert (list(entries), spec, plan.operations, plan.seed) == (["mine"], SPEC, 50, 7)
        on_held("mine", outcome["held"])
        return {"mine": outcome["held"]}

    monkeypatch.setattr(fixes, "try_fixes", tried)
    words = ["findings", str(folder), "--fixes", "--operations", "50", "--seed", "7", "--target", SPEC]
    outcome["held"] = Held("shows", "nothing", (CLEAN,))
    assert main([*words, "--record"]) == 0
    assert "holds. The script shows nothing with it." in capsys.readouterr().out
    assert read_fixes(folder)["mine"][SPEC] == outcome["held"]
    outcome["held"] = Held("shows", "nothing", (LOUD,))
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[SPEC]["mine"]["judged"][0]["new"] == ["contract: S1 at Free"]
    assert read_fixes(folder)["mine"][SPEC].problem() == ""  # what is not to be recorded is not
    assert main([*words[:-1], "vllm==0.23.0"]) == 3
    assert "no fix to try" in capsys.readouterr().out
    assert main([*words, "--only", "nobody"]) == 2
