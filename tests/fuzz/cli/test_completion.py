"""`--version`, and what the shell completes."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import version

import pytest
from blockproof.fuzz.cli import completion
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.engines.fuzzing import FuzzTask, repeat_command
from blockproof.fuzz.engines.mutants import MUTANTS
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.traces.reproduction import replay_command
from blockproof.fuzz.workload.shapes import EVERY_ATTENTION

SCRIPT = "import sys; sys.argv[0] = 'blockproof'; from blockproof.fuzz.cli.main import main; sys.exit(main())"


def script(*arguments, **variables):
    """What the installed script prints; `python -m` would go by another name, and so by other variables."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def completed_by_bash(*words):
    """What bash is given for a line that it has cut into these words, the cursor at the end of the last one."""
    variables = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return script(_BLOCKPROOF_COMPLETE="complete_bash", **variables).split()


def test_the_version_is_that_of_the_package(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"blockproof {version('blockproof')}\n"


@pytest.mark.parametrize(
    ("shell", "part"), [("bash", "complete -o default"), ("zsh", "#compdef"), ("fish", "complete")]
)
def test_every_shell_has_a_script(shell, part):
    environment = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = script("--show-completion", shell, **environment)
    assert part in shown
    assert "_BLOCKPROOF_COMPLETE" in shown


def test_bash_completes_commands_and_arguments_that_it_has_cut():
    assert "fuzz-config" in completed_by_bash("blockproof", "fuzz")
    assert completed_by_bash("blockproof", "fuzz", "--target", "fault", ":", "free-order") == ["free-order-reversed"]


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("zsh", {}),
        ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_other_shells_leave_arguments_whole(shell, variables):
    line = "blockproof fuzz --target fault:free-order"
    shown = script(_BLOCKPROOF_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_ARGS=line, **variables)
    assert "free-order-reversed" in shown


@pytest.mark.parametrize(
    ("words", "rest", "before"),
    [
        (["b", "fuzz", "--target", "fault", ":", "fr"], ["b", "fuzz", "--target", "fr"], "fault:"),
        (["b", "fuzz", "--target", "fault", ":"], ["b", "fuzz", "--target", ""], "fault:"),
        (["b", "fuzz", "--target", "vllm", "==", "0.2"], ["b", "fuzz", "--target", "0.2"], "vllm=="),
        (["b", "fuzz", "--target", "=", "vllm", "==", "0.2"], ["b", "fuzz", "--target", "0.2"], "vllm=="),
        (["b", "fuzz", "--target", "=", "im"], ["b", "fuzz", "--target", "im"], ""),
        (["b", "targets", "install", "vllm", "=="], ["b", "targets", "install", ""], "vllm=="),
        (["b", "fuzz", "--target", "vllm", "==", "0.2", ""], ["b", "fuzz", "--target", "vllm", "==", "0.2", ""], ""),
        (["b", "fuzz", "--attention", "full,sl"], ["b", "fuzz", "--attention", "full,sl"], ""),
        (["b", ""], ["b", ""], ""),
    ],
)
def test_words_that_bash_has_cut_are_joined(monkeypatch, words, rest, before):
    monkeypatch.setattr(os, "environ", {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)})
    completion.rejoin_bash_words()
    assert os.environ["COMP_WORDS"].split("\n") == rest
    assert os.environ["COMP_CWORD"] == str(len(rest) - 1)
    assert os.environ["_BLOCKPROOF_BEFORE_CURSOR_WORD"] == before


def test_targets_are_our_core_engines_what_is_installed_and_faults_once_they_are_begun(monkeypatch):
    monkeypatch.setattr(completion, "_installed", lambda: ["vllm==0.23.0"])
    assert {"impl", "vllm", "vllm==0.23.0", "fault:"} <= {*completion.target_names("")}
    assert completion.target_names("vllm=") == completion.installed_names("v") == ["vllm==0.23.0"]
    assert "fault:free-order-reversed" in completion.target_names("f")
    assert completion.target_names("fault:one-block-m") == []
    assert completion.calculator_names("fault:one-block-m") == ["fault:one-block-more"]
    assert completion.mutant_names("") == list(MUTANTS)
    assert "vllm==0.33.0" in completion.release_names("vllm==0.3")


def test_lists_are_completed_at_their_last_name():
    every = [*EVERY_ATTENTION]
    assert completion.attention_lists("") == [*every, "all"]
    assert completion.attention_lists("full,slid") == [f"full,{name}" for name in every if name.startswith("slid")]
    assert "full,full" not in completion.attention_lists("full,")
    assert completion.oracle_lists("shadow,c") == ["shadow,contract"]
    assert completion.oracle_lists("a") == ["all", "auto"]


def test_factories_in_files_are_completed_by_their_path(tmp_path, monkeypatch):
    (tmp_path / "my engine").mkdir()
    (tmp_path / "my engine" / "core.py").write_text("def other():\n    ...\n\n\ndef make_target():\n    ...\n")
    (tmp_path / "core.py").write_text("def make(x):\n    ...\n")
    monkeypatch.chdir(tmp_path)
    assert completion.target_names("my") == ["my engine/"]
    assert completion.target_names("my engine/c") == ["my engine/core.py:make_target", "my engine/core.py:other"]
    assert completion.target_names("my engine/core.py:o") == ["my engine/core.py:other"]
    assert completion.target_names("core") == []
    monkeypatch.setenv("HOME", str(tmp_path))
    assert completion.target_names("~/my engine/c")[0] == "~/my engine/core.py:make_target"
    monkeypatch.setenv("_BLOCKPROOF_COMPLETE", "complete_bash")
    assert completion.target_names("my") == []  # folders are bash's own business
    assert completion.target_names("my\\ engine/c")[0] == "my\\ engine/core.py:make_target"
    monkeypatch.setenv("_BLOCKPROOF_BEFORE_CURSOR_WORD", "my\\ engine/core.py:")
    assert completion.target_names("o") == ["other"]


def test_a_target_in_a_folder_with_a_space_is_quoted_where_it_is_recorded(tmp_path):
    spec = f"{tmp_path}/my engine/core.py:make_target"
    command = repeat_command(FuzzTask(spec, "random", Plan(1)), Summary(spec, "random", 1, operations=5))
    assert f"--target '{spec}'" in command
    assert shlex.split(command)[3] == spec
    assert shlex.split(replay_command(tmp_path / "a b.json", spec))[2:5] == [
        str(tmp_path / "a b.json"),
        "--target",
        spec,
    ]
