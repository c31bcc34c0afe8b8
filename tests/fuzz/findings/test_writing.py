"""Files are written in one piece, whatever ends the program, and several programs at once lose nothing."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
from unittest.mock import Mock

import pytest
from blockproof.fuzz.findings.reading import UnreadableError, json_of, read_bytes
from blockproof.fuzz.findings.visible import one_line, visible, visible_name
from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.releases.findings import read_observations

KILLED_IN_BETWEEN = """
import os, signal, sys
from pathlib import Path
from blockproof.fuzz.findings.writing import write_file
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
write_file(Path(sys.argv[1]), "new" * 100_000)
"""
ADDS = """
import sys
from pathlib import Path
from blockproof.fuzz.releases.findings import record_observations
for number in range(20):
    record_observations(Path(sys.argv[1]), {f"finding-{number}": {sys.argv[2]: "shows"}})
"""


def killed_while_writing(path):
    done = subprocess.run([sys.executable, "-c", KILLED_IN_BETWEEN, str(path)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("before", ["old", None])
def test_a_killed_writer_leaves_the_old_file_and_the_next_one_tidies_up(tmp_path, before):
    path = tmp_path / "file.json"
    if before is not None:
        path.write_text(before)
    killed_while_writing(path)
    assert (path.read_text() if path.exists() else None) == before
    (left,) = (each for each in tmp_path.iterdir() if each != path)
    assert left.name.startswith(".file.json.")
    assert left.name.endswith(".unfinished")
    assert not [*tmp_path.glob("*.json")][before is not None :]  # nobody takes it for one of the files
    write_file(tmp_path / "another", "x")
    assert {each.name for each in tmp_path.iterdir()} == {"another"} | ({"file.json"} if before else set())


def test_the_file_of_a_writer_that_is_alive_is_left_alone(tmp_path):
    other = tmp_path / f".file.{'0' * 16}.unfinished"
    with other.open("xb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_file(tmp_path / "another", "x")
        assert other.exists()
    write_file(tmp_path / "another", "x")
    assert not other.exists()


def test_a_writer_whose_file_was_taken_for_one_that_is_left_writes_it_again(tmp_path, monkeypatch):
    locked = fcntl.flock

    def too_late(file, how):
        monkeypatch.setattr(fcntl, "flock", locked)
        (taken,) = tmp_path.iterdir()
        taken.unlink()
        locked(file, how)

    monkeypatch.setattr(fcntl, "flock", too_late)
    write_file(tmp_path / "file", "text")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["text"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write_file(tmp_path / "file", "old")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        write_file(tmp_path / "file", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_links_devices_and_permissions_are_what_they_were_for_other_programs(tmp_path, capfd):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/file")
    write_file(tmp_path / "link", "through the link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "through the link"
    mask = os.umask(0o027)
    try:
        write_file(tmp_path / "new" / "file", [b"a", b"b"])
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new" / "file").stat().st_mode) == 0o640
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDWR), "rb", buffering=0) as reader:
        write_file(pipe, "x")
        assert reader.read(1) == b"x"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_several_at_once_keep_what_each_has_observed(tmp_path):
    names = [f"release-{number}" for number in range(4)]
    running = [subprocess.Popen([sys.executable, "-c", ADDS, str(tmp_path), name]) for name in names]
    assert [process.wait(120) for process in running] == [0] * 4
    observed = read_observations(tmp_path)
    assert len(observed) == 20
    assert all(set(row) == set(names) for row in observed.values())


def test_half_characters_are_written_as_escapes(tmp_path):
    write_file(tmp_path / "file", "a\ud800ä")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "a\\ud800ä"


# Reading, and what is shown of it.


def test_a_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", "file", 5) == b"12345"
    with pytest.raises(UnreadableError, match="5 bytes, more than the 4 a file may have"):
        read_bytes(tmp_path / "file", "file", 4)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[" * 65 + b"]" * 65, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b"[-Infinity]", "-Infinity is no JSON"),
        (b"9" * 5_000, "digits"),
        (b"\xed\xa0\x80", "utf-8"),
        (b"", "Expecting value"),
    ],
)
def test_what_is_no_json_for_us(data, says):
    with pytest.raises(ValueError, match=says):
        json_of(data)


def test_what_is_json_for_us():
    assert json_of(b'\xef\xbb\xbf{"a":\r\n[1e400, "\\u0000"]}') == {"a": [float("inf"), "\0"]}
    assert json_of(b"[" * 64 + b"]" * 64)


def test_every_character_that_cannot_be_printed_is_shown_as_an_escape():
    every = "".join(map(chr, range(0x3000))) + "\ud800\ue000\U000e0001"
    assert visible_name(every).isprintable()
    assert visible(every).replace("\n", "").replace("\t", "").isprintable()
    assert visible("ä € 😀\n\t") == "ä € 😀\n\t"
    assert one_line(f"a\n\x1b{'x' * 2_000}").startswith("a \\x1bxxx")
    assert len(one_line("x" * 2_000)) <= 800
