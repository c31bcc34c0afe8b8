"""The pytest plugin as its users meet it: options, traces as tests, what goes wrong."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from .conftest import ALONE_AND_SHARED, TRACE

pytest_plugins = ["pytester"]
TRACES = ("--blockproof-traces", "regressions")
REPLAYED = f"regressions/{TRACE}::replay"
HEAVY = ("blockproof.model", "blockproof.fuzz.targets", "hypothesis", "msgspec", "numpy", "rich", "typer", "z3")


def test_pytest_finds_it(request):
    """Where `make` was run since it became a part of the package."""
    plugin = request.config.pluginmanager.get_plugin("blockproof")
    assert plugin.__name__ == "blockproof_pytest"
    assert plugin.pytest_addoption.__module__ == "blockproof.fuzz.testing.pytest_plugin"


def test_it_imports_next_to_nothing():
    code = "import sys, pytest; before = set(sys.modules); import blockproof.fuzz.testing.pytest_plugin\n"
    code += "print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    ours = "blockproof.fuzz.testing.pytest_plugin"
    assert ours in loaded
    assert {name for name in loaded if name.startswith("blockproof")} == {
        *("blockproof", "blockproof.fuzz", "blockproof.fuzz.testing", "blockproof.fuzz.testing.pytest_options", ours),
    }
    assert not [name for name in loaded if name.startswith(HEAVY)]


def test_a_run_that_does_not_use_it_stays_free_of_it(project, pytester):
    code = f"import sys\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith({HEAVY!r})]\n"
    pytester.makepyfile(test_other=code)
    done = project.run("-p", "no:hypothesispytest", target=None, apart=True)
    done.assert_outcomes(passed=1)


@pytest.mark.parametrize("workers", ALONE_AND_SHARED)
def test_traces_are_tests(project, workers):
    project.break_engine()
    done = project.run(*TRACES, "-v", *workers, apart=True)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            f"*_ replay of regressions/{TRACE} _*",
            "contract: S10 is violated at operation 4: Allocate a, new_tokens=2",
            "shape: full(block_size=1), num_blocks=3,*",
            "   0  Submit a, prompt=(0,)  ->  1",
            "   1  Allocate a, new_tokens=1  ->  ((1,),)",
            "        free: [[]1, 2] -> [[]2]",
            "  block 1 was handed out and keeps its old identity, label 0",
            f"repeat it: blockproof replay regressions/{TRACE} --target my_target:make_target",
            f"FAILED {REPLAYED} - Failed: contract: *",
        ]
    )
    done.stdout.no_fnmatch_line("*pytest_items.py*")


def test_a_trace_can_be_named_itself(project):
    done = project.run(f"regressions/{TRACE}", "-v")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines([f"{REPLAYED} PASSED*"])
    project.run(f"regressions/{TRACE}", target=None).assert_outcomes()  # without a target it is any JSON file


def test_settings_do_what_options_do(project):
    project.settings(target="my_target:make_target", traces="regressions")
    project.run(target=None).assert_outcomes(passed=2)
    project.run("test_other.py", target=None).assert_outcomes(passed=1)
    project.run("-m", "not blockproof", target=None).assert_outcomes(passed=1, deselected=1)


def test_a_folder_that_is_named_is_looked_into_whatever_else_is_run(project):
    project.run("test_other.py", *TRACES).assert_outcomes(passed=2)


def test_what_machines_read_of_a_failure(project):
    project.break_engine()
    project.run(*TRACES, "--junitxml=junit.xml")
    cases = {case.get("name"): case for case in ElementTree.parse(project.path / "junit.xml").iter("testcase")}
    failed = cases["replay"]
    assert failed.find("failure").get("message").startswith("Failed: contract: S10 is violated")
    told = {one.get("name"): one.get("value") for one in failed.iter("property")}
    assert told == {
        "operations": "5",
        "repeat": f"blockproof replay regressions/{TRACE} --target my_target:make_target",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "Input data was truncated; the file is broken or cut off, get it again"),
        ('{"schema": 99}', "is 99, this blockproof reads"),
        ("[]", "is no trace: it does not hold a JSON object"),
    ],
)
def test_a_broken_trace_is_an_error_of_one_line(project, text, told):
    (project.traces / "broken.json").write_text(text, encoding="utf-8")
    done = project.run(*TRACES)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    lines = done.stdout.str().splitlines()
    begin = next(number for number, line in enumerate(lines) if "ERROR collecting regressions/broken.json" in line)
    assert lines[begin + 1].startswith("regressions/broken.json: ")
    assert told in lines[begin + 1]
    assert lines[begin + 2].startswith("====")


def test_a_file_alone_runs_no_code(project):
    """The trace names the target that it was made with; nobody has said that this code is trusted."""
    (project.path / "my_target.py").write_text("raise SystemExit('this code was run')", encoding="utf-8")
    done = project.run(*TRACES, target=None)
    done.stdout.fnmatch_lines(["*target: 'my_target:make_target' is somebody's code; if you trust it, say so: *"])
    assert "this code was run" not in done.stdout.str() + done.stderr.str()


def test_a_trace_of_a_core_of_ours_names_its_target_itself(project):
    trace = json.loads((project.traces / TRACE).read_text(encoding="utf-8"))
    trace["target"] = "fault:usage-counts-null-block"
    trace["oracles"] = ["lockstep"]
    (project.traces / TRACE).write_text(json.dumps(trace), encoding="utf-8")
    done = project.run(*TRACES, target=None)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*model and target differ in `usage`*"])


def test_a_trace_that_tests_nothing_fails(project):
    project.change("my_target.py", '!= ["full"]:', "!= []:")
    done = project.run(*TRACES)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines([f"{TRACE} tests nothing: my-engine takes none of its operations"])


def test_an_exception_of_the_target_is_told_with_its_place(project):
    project.change(
        "my_target.py", "    def look(self):\n", "    def look(self):\n        raise LookupError('of mine')\n"
    )
    done = project.run(*TRACES)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*LookupError: of mine", "*my_target.py:*, in MyTarget.look"])
    assert "Traceback" not in done.stdout.str()


def test_a_bug_of_ours_is_shown_without_frames_of_pytest(project, monkeypatch):
    from blockproof.fuzz.testing.corpus import CorpusCase

    def broken(*arguments):
        raise LookupError("of ours")

    monkeypatch.setattr(CorpusCase, "run", broken)
    done = project.run(*TRACES)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*LookupError: of ours"])
    assert "site-packages/_pytest" not in done.stdout.str()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--blockproof-traces", "nowhere"), "--blockproof-traces: *nowhere: no such folder; *"),
        (("--blockproof-seconds", "soon"), "--blockproof-seconds: 'soon' is no number of seconds"),
        (("--blockproof-seconds", "1", "--blockproof-seed", "x"), "--blockproof-seed: 'x' is no whole number"),
        (("--blockproof-seconds", "1", "--blockproof-oracle", "luck"), "--blockproof-oracle: 'luck' is unknown; *"),
        (("--blockproof-seconds", "1", "--blockproof-attention", "x"), "--blockproof-attention: 'x' is unknown; *"),
        (("--blockproof-seconds", "1", "--blockproof-known", "x"), "--blockproof-known: *x: no such file; *"),
        (("--blockproof-seconds", "1", "--blockproof-target", "what"), "--blockproof-target: unknown target 'what'*"),
    ],
)
def test_a_mistake_in_an_option_is_a_usage_error(project, arguments, told):
    done = project.run(*arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: {told}"])


def test_seconds_need_a_target(project):
    done = project.run("--blockproof-seconds", "1", target=None)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --blockproof-seconds: of what? Name it with --blockproof-target"])


@pytest.mark.parametrize("target", ["my_targets:make_target", "my_target:make"])
def test_a_target_that_cannot_be_opened_is_said_once(project, target):
    (project.traces / "more.json").write_bytes((project.traces / TRACE).read_bytes())
    done = project.run(*TRACES, target=target)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.str().count(f"--blockproof-target: {target}: ") == 1
    assert project.run(*TRACES, "--collect-only", "-q", target=target).ret == pytest.ExitCode.OK


@pytest.mark.slow
def test_workers_say_once_that_it_cannot_be_opened(project):
    (project.traces / "more.json").write_bytes((project.traces / TRACE).read_bytes())
    done = project.run(*TRACES, "-n", "2", target="my_target:make", apart=True)
    done.assert_outcomes(passed=1, errors=1)
    assert done.stdout.str().count("\n--blockproof-target: my_target:make: ") == 1
