"""Standalone scripts of findings: what they may use, how they are run, and what counts as shown."""

import ast
import json
import sys
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening import environments
from blockproof.fuzz.releases.finding_scripts import (
    engine_of,
    judged,
    observe_scripts,
    read_scripts,
    run_script,
    standalone,
)
from blockproof.fuzz.releases.findings import (
    BY_SCRIPTS,
    SCRIPT,
    FindingEntry,
    folder_page,
    read_entries,
    read_observations,
)

FOLDER = Path(__file__).parents[3] / "docs" / "evidence" / "findings"
ENTRIES = read_entries(FOLDER)
SCRIPTS = read_scripts(FOLDER, list(ENTRIES))
RECORDED = read_observations(FOLDER, BY_SCRIPTS)
SPEC = "vllm==0.33.0"
WANTED = "ValueError: no block"
ENTRY = FindingEntry("A title", "crash", "S8", "yes: seen", "nothing", "mend it", raises=WANTED)
SHOWS = f"import sys\nprint('exception: {WANTED}')\nprint('the defect shows')\nsys.exit(1)"
IMPORTS = "\nif False:\n    import vllm\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a script, which is run in this interpreter."""
    monkeypatch.setattr("blockproof.fuzz.opening.targets.interpreter_of", lambda spec: (spec, None))

    def write(code):
        path = tmp_path / "mine" / SCRIPT
        path.parent.mkdir(exist_ok=True)
        path.write_text(code + IMPORTS)
        return path

    return write


# What is written.


def test_every_finding_has_a_script_that_was_run_on_every_known_release():
    assert {path.parent.name for path in FOLDER.glob(f"*/{SCRIPT}")} == set(SCRIPTS)
    assert set(RECORDED) == set(SCRIPTS) == set(ENTRIES)
    for name, row in RECORDED.items():
        family = engine_of(SCRIPTS[name])
        assert set(row) == {family.spec(release) for release in family.releases}, name


def test_a_report_is_there_where_one_is_ready():
    assert {path.parent.name for path in FOLDER.glob("*/report.md")} == {
        name for name in ENTRIES if ENTRIES[name].ready
    }


def test_what_shows_on_the_newest_release_has_a_script_that_shows_it():
    observed = read_observations(FOLDER)
    shown = {key.partition(" ")[0] for key, row in observed.items() if row.get(SPEC) == "shows"}
    assert {name for name, row in RECORDED.items() if row.get(SPEC) == "shows"} == shown


def test_a_script_and_the_case_of_the_scheduler_show_the_same_where_both_could_be_tried():
    observed = read_observations(FOLDER)
    compared = [
        (name, release, seen, observed[f"{name} (scheduler)"][release])
        for name, row in RECORDED.items()
        for release, seen in row.items()
        if release in observed.get(f"{name} (scheduler)", {})
    ]
    both = [one for one in compared if all(seen in ("shows", "nothing") for seen in one[2:])]
    assert len(both) >= 200
    assert [one for one in both if one[2] != one[3]] == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_as_one_file_imports_the_engine_and_the_standard_library_only(name):
    tree = ast.parse(standalone(SCRIPTS[name]))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported - set(sys.stdlib_module_names) <= {engine_of(SCRIPTS[name]).name, "torch"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]


# What counts.


@pytest.mark.parametrize(
    ("status", "lines", "errors", "seen"),
    [
        (1, ["expected: a", f"exception: {WANTED}", "the defect shows"], "", "shows"),
        (0, ["the defect does not show"], "a warning", "nothing"),
        (3, ["could not be tried: no such option"], "", "not tried: no such option"),
        # None of the following may count as shown.
        (1, [], "Traceback ...\nValueError: no block", "failed: exit status 1, ValueError: no block"),
        (1, ["the defect does not show"], "", "failed: exit status 1, the defect does not show"),
        (0, ["the defect shows"], "", "failed: exit status 0, the defect shows"),
        (-9, ["the defect shows"], "", "failed: exit status -9, the defect shows"),
        (1, [], "", "failed: exit status 1, and nothing printed"),
        (1, ["the defect shows"], "", f"failed: another exception, or none; demanded is {WANTED}"),
        (
            1,
            ["exception: AssertionError: External KV connector is not verified yet", "the defect shows"],
            "",
            "failed: another exception, AssertionError: External KV connector is not verified yet; demanded is "
            + WANTED,
        ),
    ],
)
def test_status_verdict_and_exception_must_agree(status, lines, errors, seen):
    assert judged(status, lines, errors, WANTED) == seen


def test_a_script_is_run_and_judged(script):
    told = run_script(script(SHOWS), SPEC, WANTED)
    assert (told.seen, told.lines) == ("shows", (f"exception: {WANTED}", "the defect shows"))
    assert run_script(script("raise ValueError('no block')"), SPEC, WANTED).seen.startswith("failed: exit status 1")


def test_a_script_that_hangs_is_ended(script):
    hangs = script("print('the defect shows', flush=True)\nimport time\ntime.sleep(3600)")
    told = run_script(hangs, SPEC, deadline_s=3.0)
    assert told.seen == "failed: no end within 3 s"


def test_a_script_without_an_engine_is_told(tmp_path):
    path = tmp_path / SCRIPT
    path.write_text("print('vllm')")
    with pytest.raises(ValueError, match="imports no engine"):
        engine_of(path)


def test_scripts_run_on_releases_of_their_engine_only(script):
    path = script(SHOWS)
    observed, problems, printed = observe_scripts(
        {"mine": ENTRY}, {"mine": path}, [SPEC, "impl"], 2, lambda *told: None
    )
    assert observed == {"mine": {SPEC: "shows"}}
    assert problems == []
    assert printed["mine"][SPEC][-1] == "the defect shows"


def test_a_script_that_changes_its_mind_is_a_problem(script, tmp_path):
    marker = f"from pathlib import Path\nflag = Path({str(tmp_path / 'ran')!r})\n"
    path = script(
        f"{marker}if flag.exists():\n    print('the defect does not show')\n    raise SystemExit\nflag.touch()\n{SHOWS}"
    )
    _, problems, _ = observe_scripts({"mine": ENTRY}, {"mine": path}, [SPEC], 2, lambda *told: None)
    assert problems == [f"mine on {SPEC}: shows, nothing"]


# The command.


def test_recording_checking_and_the_page(script, tmp_path, capsys):
    script(SHOWS)
    text = '[mine]\ntitle="t"\nclass="crash"\nrule="S8"\nreachable="yes"\nsees="x"\nfix="y"\n'
    (tmp_path / "findings.toml").write_text(f'{text}raises="{WANTED}"\n')
    words = ["findings", str(tmp_path), "--scripts", "--target", SPEC]
    assert main(words) == 1
    assert f"mine on {SPEC}: shows, recorded was nothing at all" in capsys.readouterr().out
    assert main([*words, "--record"]) == 0
    assert json.loads((tmp_path / "scripts.json").read_text()) == {"mine": {SPEC: "shows"}}
    capsys.readouterr()
    assert main([*words, "--json", "--times", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["printed"]["mine"][SPEC][-1] == "the defect shows"
    assert "[script](findings/mine/scenario.py): vllm==0.33.0: shows" in folder_page(tmp_path, "command")
    script("print('the defect does not show')")
    assert main(words) == 1
    assert f"mine on {SPEC}: nothing, recorded was shows" in capsys.readouterr().out
    script("raise ValueError('no block')")
    assert main([*words, "--record"]) == 1  # what fails is a problem, whatever was recorded


def test_a_release_that_is_not_installed_is_told(capsys):
    assert main(["findings", str(FOLDER), "--scripts", "--only", "untagged-extra-keys", "--target", "vllm==0.1.0"]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["overlapping-items", "state-from-outside"])
def test_the_newest_installed_release_shows_what_was_recorded(name):
    installed = [one.name for one in environments.installed(families()["vllm"]) if one.name in RECORDED[name]]
    if not installed:
        pytest.skip("no release is installed")
    told = run_script(SCRIPTS[name], installed[-1], ENTRIES[name].raises)
    assert told.seen == RECORDED[name][installed[-1]], told.lines
