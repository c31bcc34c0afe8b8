"""A process that is forked is what a new one would be, to the test and to itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.opening.patches import VARIABLE
from blockproof.fuzz.opening.process import ChildLimits, Launch, Process

from .forked import Forking, forking

ENGINE = "tell_apart"
NEW, FORKED = "new", "forked"


@pytest.fixture
def base(tmp_path: Path) -> None:
    """This interpreter, under another name, which has an engine that says who imported it."""
    (tmp_path / "base" / "bin").mkdir(parents=True)
    (tmp_path / "base" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer" / f"{ENGINE}.py").write_text("import os\nIMPORTED_BY = os.getpid()\n")


@pytest.fixture
def kept(base: None) -> Iterator[Forking]:
    """Forks the processes of that interpreter."""
    with forking({"base": (ENGINE,)}, {}) as made:
        yield made


def started(folder: Path, program: str, *words: str, **options: Any) -> "subprocess.Popen[str]":
    """The program in that interpreter."""
    command = [str(folder / "base" / "bin" / "python"), "-P", "-c", program, *words]
    path = os.pathsep.join([str(folder / "own"), str(folder / "layer")])
    environment = {**os.environ, "PYTHONPATH": path, **options.pop("env", {})}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, **options)


WHICH = f"import os, {ENGINE}; print('{NEW}' if {ENGINE}.IMPORTED_BY == os.getpid() else '{FORKED}', flush=True)\n"


def which(folder: Path, **options) -> str:
    return started(folder, WHICH, **options).communicate()[0].strip()


def test_the_engine_is_imported_once(kept, tmp_path):
    assert [which(tmp_path) for _ in range(3)] == [FORKED] * 3
    assert kept.forked == 3


def test_a_patched_engine_and_another_environment_are_not_those_that_were_imported(kept, tmp_path):
    assert which(tmp_path, env={VARIABLE: '{"without": []}'}) == NEW
    assert which(tmp_path, umask=0o77) == NEW
    (tmp_path / "own" / "blockproof" / "impl").mkdir(parents=True)  # our core in place of the engine's
    assert which(tmp_path) == NEW
    (tmp_path / "own" / "blockproof" / "impl").rmdir()
    (tmp_path / "own" / "lent.py").write_text("")  # a package that the engine uses where it is installed
    assert which(tmp_path) == NEW
    (tmp_path / "own" / "lent.py").unlink()
    assert started(tmp_path, WHICH, "fix.py").communicate()[0].strip() == NEW
    with TemporaryDirectory() as elsewhere:  # another version of it
        path = os.pathsep.join([str(tmp_path / "own"), elsewhere, str(tmp_path / "layer")])
        assert which(tmp_path, env={"PYTHONPATH": path}) == NEW
    assert kept.forked == 0
    program = f"import os, {ENGINE}; print({ENGINE}.IMPORTED_BY)"
    said = [started(tmp_path, program, env={"VLLM_X": value}).communicate()[0] for value in ("1", "2", "1")]
    assert said[0] == said[2] != said[1]


def test_a_patched_engine_is_imported_behind_its_patch_and_what_is_not_its_own_before(tmp_path, base):
    (tmp_path / "layer" / "other.py").write_text("import os\nIMPORTED_BY = os.getpid()\n")
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(f"import other, sys; sys.modules['{ENGINE}'] = other; other.PATCHED = True")
    with forking({}, {"base": ("other",)}) as made:
        program = f"import os, other, {ENGINE} as it; print(it.PATCHED, it.IMPORTED_BY == os.getpid())"
        for _ in range(2):
            process = started(tmp_path, program, env={VARIABLE: '{"without": []}'})
            assert process.communicate()[0] == "True False\n"
        assert started(tmp_path, program, env={VARIABLE: '{"without": ["other"]}'}).communicate()[0] == "True True\n"
        assert made.forked == 2


@pytest.mark.parametrize(
    ("ends", "status", "said"),
    [
        ("", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, ""),
        ("os.abort()", -signal.SIGABRT, ""),
        ("import atexit; atexit.register(print, 'behind')", 0, ""),
    ],
)
def test_its_end_is_told_as_that_of_a_new_one(kept, tmp_path, ends, status, said):
    process = started(tmp_path, WHICH + ends)
    output, errors = process.communicate()
    assert output.split() == [FORKED, *(["behind"] if "atexit" in ends else [])]
    assert process.returncode == status
    assert errors.strip().endswith(said)


def test_it_has_its_own_words_folder_variables_session_and_descriptors(kept, tmp_path):
    program = f"""
import os, sys, {ENGINE}
print(sys.argv[1:], os.getcwd(), os.environ["BLOCKPROOF_X"], "BLOCKPROOF_Y" in os.environ, __name__)
print(os.getsid(0) == os.getpid(), sys.path[0] == os.environ["PYTHONPATH"].split(":")[0])
os.write(int(sys.argv[1]), b"here")
print(*sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)))
"""
    for value in ("a", "b"):
        read, write = os.pipe()
        options = {"pass_fds": (write,), "cwd": tmp_path, "start_new_session": True}
        process = started(tmp_path, program, str(write), env={"BLOCKPROOF_X": value}, **options)
        os.close(write)
        output, errors = process.communicate()
        words = f"['{write}'] {tmp_path} {value} False __main__"
        assert output.splitlines() == [words, "True True", f"0 1 2 {write}"], errors
        assert os.read(read, 10) == b"here"
        assert os.read(read, 10) == b""  # nobody else has the end that writes
        os.close(read)
    assert kept.forked == 2


def test_a_child_of_the_harness_is_killed_and_hangs_as_a_new_one(kept, tmp_path):
    environment = {**environment_of(None, tmp_path), "PYTHONPATH": os.pathsep.join(["", str(tmp_path / "layer")])}
    command = [str(tmp_path / "base" / "bin" / "python"), "-P", "-c"]
    for ends, lost in (("os.kill(os.getpid(), 9)", "killed by SIGKILL"), ("time.sleep(60)", "no answer within 0.3 s")):
        program = f"import os, sys, time; os.write(int(sys.argv[2]), b'up\\n'); sys.stdin.close(); {ends}"
        process = Process(Launch("it", [*command, program], environment), ChildLimits(operation_s=0.3))
        assert process.first(bytes.decode) == "up"
        with pytest.raises(Exception, match=lost):
            process.exchange(b"x\n", "a question", 0.3, bytes.decode)
        process.end()
    assert kept.forked == 2


def test_where_the_server_has_ended_or_has_the_descriptor_a_new_one_is_started(kept, tmp_path):
    assert which(tmp_path) == FORKED
    (server,) = kept._servers.values()
    taken = os.dup(0)
    assert which(tmp_path, pass_fds=(taken,)) == FORKED
    os.dup2(taken, 512)  # where it hears commands
    assert which(tmp_path, pass_fds=(512,)) == NEW
    server._process.kill()
    assert which(tmp_path) == NEW
    os.close(taken)
    os.close(512)
