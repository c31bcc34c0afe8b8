"""A process that is forked is what a new one would be, to the test and to itself."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.opening.patches import VARIABLE
from blockproof.fuzz.opening.process import ChildLimits, Launch, Process

from .forked import Forking, Server, forking

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


def test_servers_of_all_releases_are_forked_from_one_that_has_imported_what_they_share(tmp_path, base, monkeypatch):
    begun: list[Sequence[str]] = []
    started_one = Server.started

    def start(interpreter: Sequence[str], environment: Mapping[str, str], modules: Sequence[str]) -> Server:
        begun.append(modules)
        return started_one(interpreter, environment, modules)

    def told(layer: str) -> list[str]:
        (tmp_path / layer).mkdir(exist_ok=True)
        (tmp_path / layer / f"{ENGINE}.py").write_text("import os\nIMPORTED_BY = os.getpid()\n")
        path = os.pathsep.join([str(tmp_path / "own"), str(tmp_path / layer)])
        program = f"import os, sys, {ENGINE} as it; print('wave' in sys.modules, it.IMPORTED_BY, it.__file__)"
        return started(tmp_path, program, env={"PYTHONPATH": path}).communicate()[0].split()

    monkeypatch.setattr(Server, "started", start)
    with forking({"base": (ENGINE,)}, {}, {"base": ("wave",)}) as made:
        one, again, other = told("one"), told("one"), told("other")
        assert one == again
        assert (one[0], other[0], begun) == ("True", "True", [("wave",)])
        assert one[1] != other[1]
        assert [Path(said[2]).parent.name for said in (one, other)] == ["one", "other"]
        (tmp_path / "own-wave").mkdir()
        (tmp_path / "own-wave" / "wave.py").write_text("")  # a release with another version of what is shared
        assert told("own-wave")[0] == "False"
        assert begun.pop() == (ENGINE,)
        root = next(server for key, server in made._servers.items() if not key[2])
        os.kill(root._process, signal.SIGKILL)
        assert told("last")[0] == "False"
        assert begun == [("wave",), (ENGINE,)]
        processes = [server._process for server in made._servers.values()]
        assert len(set(processes)) == 5
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


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
    os.kill(server._process, signal.SIGKILL)
    assert which(tmp_path) == NEW
    os.close(taken)
    os.close(512)


OURS = "import sys; from blockproof.fuzz.cli.main import main; "
"""How a program of ours begins."""


def said(program: str, *options: str, **more: Any) -> str:
    """What it prints in our interpreter, and to which exit status."""
    command = [sys.executable, *options, "-c", OURS + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **more)
    return f"{done.stdout}{done.stderr.rpartition('Traceback')[2][-20:]}{done.returncode}"


@pytest.fixture(scope="module")
def ours() -> Iterator[Forking]:
    """Has a server of our own interpreter."""
    with forking() as made:
        assert [said(""), said("")] == ["0", "0"]
        assert made.forked == 1, "a server for one command is not worth it"
        yield made


@pytest.mark.few_are_quick
@pytest.mark.parametrize("options", [(), ("-P",), ("-u", "-P")])
@pytest.mark.parametrize(
    "program",
    [
        "print(sys.path, sys.argv, __name__, sys.flags.optimize)",
        "import os; print(os.getcwd(), os.getpgid(0), os.getsid(0), os.environ.get('HOME'), sys.stdout.write_through)",
        "import os; print(sorted(n for n in map(int, os.listdir('/proc/self/fd')) if n < 512 and n != 3))",
        "import os; print(open('/proc/self/cmdline').read().strip(chr(0)).split(chr(0)))",
        "import signal; print([str(signal.getsignal(n)).partition(' of ')[0] for n in (1, 2, 15)])",
        "import signal; print(signal.pthread_sigmask(0, ()))",
        "import atexit; atexit.register(print, 'behind'); sys.exit(main(['--version']))",
        "sys.exit('why')",
        "1 / 0",
        "raise KeyboardInterrupt",
        "import os; os.kill(os.getpid(), 15)",
    ],
)
def test_a_program_of_ours_that_is_forked_is_what_a_new_one_is(ours, program, options, tmp_path):
    count = ours.forked
    forked = said(program, *options, cwd=tmp_path)
    assert ours.forked == count + 1
    new = said(f"{program}  # sys.modules", *options, cwd=tmp_path)
    assert ours.forked == count + 1
    assert forked == new.replace("  # sys.modules", "")


def test_it_inherits_signals_that_are_blocked_and_ignored(ours):
    shown = "import signal; print(signal.getsignal(1) == signal.SIG_IGN, [*map(int, signal.pthread_sigmask(0, ()))])"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        assert said(shown) == "True [15]\n0"
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        signal.signal(signal.SIGHUP, before)


def test_it_is_not_forked_where_it_would_not_be_the_same(ours, tmp_path):
    count, hidden = ours.forked, {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert said("print(__name__)", env={**os.environ, "PYTHONHASHSEED": "7"}) == "__main__\n0"
    assert said("print(__debug__)", "-O") == "False\n0"
    assert ours.forked == count
    assert said("print(__name__)", env=hidden) == "__main__\n0"
    assert ours.forked == count + 1
    (tmp_path / "colorsys.py").write_text("")  # of Python's own, and imported by ours
    where = "import colorsys; print(colorsys.__file__)"
    assert f"{tmp_path}/colorsys.py" in said(where, env=hidden)
    assert f"{tmp_path}/colorsys.py" in said(where, cwd=tmp_path)
    assert f"{tmp_path}/colorsys.py" not in said(where, "-P", cwd=tmp_path)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[0] - 1, most[1]))
    try:
        assert said("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])") == f"{most[0] - 1}\n0"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert ours.forked == count + 2


def test_what_it_starts_is_forked_by_a_server_of_its_own_which_ends_with_it(ours):
    program = """
import os, subprocess, time
below = [sys.executable, "-c", "import sys; from blockproof.fuzz.cli.main import main; print(FORKED)"]
shown = lambda: subprocess.run([*below[:2], below[2].replace("FORKED", "'forked' in vars(sys)['modules']")],
    capture_output=True, text=True).stdout.strip()
def lives(n):
    try:
        return open(f"/proc/{n}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
children = lambda: filter(lives, open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split())
print(shown(), shown())
while len(left := [*children()]) > 1:  # what it has started is still ending; nobody waits for some of it
    time.sleep(0.01)
print(*left)
"""
    first, second, server = said(program)[:-1].split()
    assert (first, second) == ("True", "True")
    for _ in range(100):
        if not os.path.exists(f"/proc/{server}") or "Z" in Path(f"/proc/{server}/stat").read_text():
            break
        time.sleep(0.05)
    else:
        pytest.fail("its server goes on")
