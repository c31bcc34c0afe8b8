"""Small things around a command: devices as files, extras that are missing, folders of the package's name, limits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.cli.prove import print_theorems

CLI = [sys.executable, "-m", "blockproof.fuzz.cli"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("fuzz-traffic /dev/zero", 2),
        ("fuzz --floors /dev/zero", 2),
        ("fuzz --known /dev/zero", 2),
        ("fuzz --write-known /dev/zero", 2),
        ("plan /dev/zero --memory 60GiB", 2),
        ("replay /dev/zero", 2),
        ("mutants --setting usual --keep /dev/zero", 2),
        ("report /dev/zero", 2),
    ],
)
def test_a_device_in_place_of_a_file_is_refused_in_a_line(words, code, tmp_path):
    limited = f"ulimit -v 4000000; exec {' '.join(CLI)} {words}"
    done = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert "/dev/zero" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_endless_line_or_log_ends(tmp_path, monkeypatch, capsys):
    log = tmp_path / "log.jsonl"
    log.write_text("\n" * 5_000)
    monkeypatch.setattr("blockproof.fuzz.traffic.logs.LONGEST_LOG", 10_000)
    assert main(["fuzz-traffic", str(log)]) == 2
    assert "more than 10,000 characters; cut the log first" in capsys.readouterr().err


def test_findings_without_any_release_could_try_nothing(monkeypatch, capsys):
    monkeypatch.setattr("blockproof.fuzz.opening.environments.installed", list)
    assert main(["findings"]) == 3
    assert "no release is installed" in capsys.readouterr().err


@pytest.mark.parametrize(("where", "code"), [("x", 2), ("cuda:x", 2), ("fault:none", 2), ("", 2)])
def test_a_device_that_nobody_has_is_wrong_usage_with_and_without_torch(where, code, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["fuzz", "--tensors", where]) == code
    assert "--tensors" in capsys.readouterr().err
    assert main(["fuzz", "--tensors", "cpu"]) == 3


def test_theorems_are_listed_without_a_solver(monkeypatch, capsys):
    assert main(["prove", "--list", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    print_theorems([], True)
    assert sorted(one["id"] for one in known) == sorted(one["id"] for one in json.loads(capsys.readouterr().out))
    monkeypatch.setattr("blockproof.proofs.requirements.z3_installed", lambda: False)
    assert main(["prove", "--list", "T1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{'T1':16} A sliding window leaves behind exactly the tokens that no later query reads.\n")
    assert "T1.full" in out
    assert main(["prove", "--list", "T999"]) == 2
    assert main(["prove", "T1"]) == 3


def test_a_suggested_option_can_be_pasted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trace = tmp_path / "trace.json"
    assert main(["fuzz", "--target", "fault:touch-ignores-used-blocks", "--attention", "full", "--seed", "2"]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("trace:  "))
    document = json.loads(Path(line.removeprefix("trace:  ")).read_text())
    trace.write_text(json.dumps({**document, "target": "program:touch /x; rm y"}))
    for command in ("replay", "shrink"):
        assert main([command, str(trace)]) == 2
        assert "add --target 'program:touch /x; rm y'" in capsys.readouterr().err


def test_a_folder_of_the_packages_name_costs_the_plugin_only(tmp_path):
    (tmp_path / "blockproof").mkdir()
    (tmp_path / "blockproof" / "__init__.py").touch()
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_own.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    # An editable install finds its own all the same, the package in a wheel is hidden: .ci/dependencies tries that.
    hides = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parents[3])!r}]"
    shown = f"{hides}; import blockproof_pytest as plugin; print(plugin.pytest_report_header())"
    alone = subprocess.run([sys.executable, "-S", "-P", "-c", shown], capture_output=True, text=True, timeout=120)
    assert alone.stdout.startswith(f"blockproof: no plugin, since {tmp_path / 'blockproof'}"), alone.stderr


def test_the_test_of_a_finding_may_stand_in_two_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two"):
        words = ["--target", "fault:touch-ignores-used-blocks", "--attention", "full", "--seed", "2", "--out", folder]
        assert main(["fuzz", *words]) == 1
    assert {path.name for path in Path("one").iterdir()} == {path.name for path in Path("two").iterdir()}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "one", "two"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "import file mismatch" not in done.stdout
    assert "4 failed" in done.stdout


@pytest.mark.parametrize("kilobytes", [60_000, 400_000])
def test_little_memory_is_never_the_code_of_a_finding(kilobytes, tmp_path):
    words = f"ulimit -v {kilobytes}; exec {' '.join(CLI)} fuzz --operations 200 --seed 1"
    done = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode != 1 or "MemoryError" in done.stderr or "cannot allocate" in done.stderr
    if kilobytes > 100_000:
        assert done.returncode == 0, done.stderr
