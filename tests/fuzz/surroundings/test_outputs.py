"""What cannot be written is refused before the run begins; what cannot be written after it hides no finding."""

import errno
import json
import os
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.findings import writing

FAULT = ["fuzz", "--target", "fault:touch-ignores-used-blocks", "--attention", "full", "--seed", "2"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder").mkdir()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["fuzz", "--out", "taken/findings"], "--out: taken/findings"),
        (["fuzz", "--out", "taken"], "--out: taken"),
        (["fuzz", "--out", "/proc/nowhere/findings"], "--out: /proc/nowhere/findings"),
        (["fuzz", "--out", "n" * 300], "--out: nnn"),
        (["fuzz", "--junit", "folder"], "--junit: folder"),
        (["fuzz", "--write", "folder"], "--write: folder"),
        (["fuzz", "--write-known", "folder"], "--write-known: folder"),
        (["fuzz", "--junit", "taken/j.xml"], "--junit: taken/j.xml"),
        (["fuzz-config", "--out", "taken"], "--out: taken"),
        (["simulate", "--target", "vllm==0.0.1", "--out", "taken"], "--out: taken"),
        (["fuzz-traffic", "no.jsonl", "--out", "taken"], "--out: taken"),
        (["explore", "full-evicted", "--out", "taken"], "--out: taken"),
        (["explore", "full-evicted", "--save", "taken"], "--save: taken"),
        (["diff", "--target", "impl", "--target", "impl", "--out", "taken"], "--out: taken"),
        (["verify", "--target", "impl", "--target", "impl", "--write", "folder"], "--write: folder"),
        (["campaign", "--target", "impl", "--out", "taken"], "--out: taken"),
        (["campaign", "--target", "impl", "--write", "folder"], "--write: folder"),
        (["campaign", "--target", "impl", "--store", "folder"], "--store: folder"),
        (["watch", "impl", "--against", "impl", "--write", "folder"], "--write: folder"),
        (["bench", "--keep", "folder"], "--keep: folder"),
        (["mutants", "--setting", "usual", "--keep", "folder"], "--keep: folder"),
        (["prove", "T1", "--export", "taken"], "--export: taken"),
        (["plan", "gemma-3-27b", "--memory", "60GiB", "--html", "folder"], "--html: folder"),
        (["deviations", "--write", "folder"], "--write: folder"),
        (["findings", "--write", "folder"], "--write: folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_run(words, named, capsys):
    before = sorted(Path().rglob("*"))
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert named in line
    assert "can be written" in line
    assert sorted(Path().rglob("*")) == before


def test_what_is_there_by_default_is_tried_too(capsys):
    Path("findings").write_text("a file")
    assert main(["fuzz", "--operations", "100"]) == 2
    assert "--out: findings: Not a directory" in capsys.readouterr().err


def test_trying_leaves_nothing_and_no_command_that_writes_nothing_minds(capsys):
    assert main(["fuzz", "--operations", "100", "--seed", "1", "--junit", "new/j.xml", "--out", "deep/er/found"]) == 0
    assert sorted(map(str, Path().iterdir())) == ["folder", "new", "taken"]
    Path("findings").write_text("a file")
    assert main(["explore", "--list"]) == 0
    assert main(["fuzz", "--operations", "100", "--seed", "1", "--junit", "/dev/stderr", "--out", "other"]) == 0
    capsys.readouterr()


@pytest.fixture
def full_disk(monkeypatch):
    """From when the files of a finding are written, there is no room any more."""
    usual = writing._replaced

    def replaced(path, parts):
        if path.suffix in (".json", ".py", ".html", ".xml", ".md", ".toml"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return usual(path, parts)

    monkeypatch.setattr(writing, "_replaced", replaced)


@pytest.mark.parametrize("more", [[], ["--keep-going", "--operations", "500"], ["--json"]])
def test_a_finding_is_told_although_the_disk_is_full(full_disk, more, capsys):
    reports = ["--junit", "j.xml", "--write", "s.md", "--write-known", "known.toml"]
    assert main([*FAULT, *reports, *more]) == 1
    out, err = capsys.readouterr()
    if "--json" in more:
        assert json.loads(out)["finding"]["operation"]
    else:
        assert "FOUND: `" in out
        assert "Submit a" in out  # the smallest trace
        assert "not written: findings/" in out
    for name in ("findings/", "j.xml", "s.md", "known.toml"):
        assert any(name in line and "No space left on device" in line for line in err.splitlines()), name
    assert "Traceback" not in err


def test_reports_that_are_not_written_are_no_success(full_disk, capsys):
    assert main(["fuzz", "--operations", "200", "--seed", "1", "--junit", "j.xml"]) == 2
    out, err = capsys.readouterr()
    assert "no difference in " in out
    assert "j.xml: No space left on device; it is not written" in err


def test_other_commands_tell_what_they_have_found(full_disk, capsys):
    assert main(["explore", "--fault", "neighbour-evicted"]) == 1
    assert "BROKEN: " in capsys.readouterr().out
    assert main(["diff", "--target", "impl", "--target", FAULT[2], "--operations", "2000", "--attention", "full"]) == 1
    out, err = capsys.readouterr()
    assert "differences/" in err
    assert out
    assert main(["fuzz-config", "--target", "fault:one-block-more", "--cases", "300", "--seed", "1"]) == 1
    assert "findings/configuration_" in capsys.readouterr().err
