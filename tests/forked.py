"""Processes that tests start are forked from one that has imported what takes long: an engine up to ten seconds, our
command line one.

What forks is `fork_server`, in the same interpreter and with the same environment. The process is a child of the test,
which sees its exit status or the signal that ended it.

Of a release each process begins with the import of our modules. What no release has of its own is imported once for all
of them, and each has a server that was forked from that one. Of an engine that is changed only what is not its own
is imported once; and what a command starts that a test runs in a process of its own is no child of the test.

In our own interpreter a command line, a target's process and a worker are forked (`OWN_PROGRAMS`), and so is what they
start themselves: each has a server of its own from its beginning (`Below`).
"""

import _posixsubprocess
import ctypes
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from blockproof.fuzz.findings.interruption import ENDING
from blockproof.fuzz.opening.patches import VARIABLE

SERVER = Path(__file__).with_name("fork_server.py")
IMPORTED: Mapping[str, Sequence[str]] = {
    "base-vllm": (
        *("vllm.v1.core.sched.scheduler", "vllm.v1.core.sched.async_scheduler", "vllm.v1.core.kv_cache_manager"),
        *("vllm.v1.core.kv_cache_metrics", "vllm.v1.executor.abstract", "vllm.v1.simple_kv_offload.metadata"),
    ),
    # These are imported with some modules of their own replaced, so here is only what they import of others.
    "base-sglang": (
        *("torch._inductor.compile_fx", "transformers.modeling_utils", "transformers.generation.continuous_batching"),
        *("transformers.modeling_layers", "openai.types.responses", "scipy.optimize", "IPython.core.display"),
        *("aiohttp", "fastapi", "compressed_tensors.config.base"),
    ),
    "base-lmdeploy": ("torch.export", "transformers.modeling_gguf_pytorch_utils"),
    "base-transformers": ("transformers.generation.continuous_batching.cache",),
}
"""By the folder of the interpreter: what takes long to import."""
FOR_CHANGED: Mapping[str, Sequence[str]] = {
    "base-vllm": (
        *("torch._inductor.lowering", "torch._inductor.compile_fx", "torch._inductor.standalone_compile"),
        *("transformers.models.auto.image_processing_auto", "openai.types.responses", "torch.distributed.fsdp"),
    ),
}
"""The same of an engine that is changed, by a patch for example, before it is imported."""
SHARED: Mapping[str, Sequence[str]] = {**IMPORTED, **FOR_CHANGED}
"""The same of what no release has of its own: all servers of an interpreter are forked from one that has it."""
OWN = (
    *("coverage", "concurrent.futures.process", "multiprocessing.popen_spawn_posix", "multiprocessing.queues"),
    *("multiprocessing.resource_tracker", "multiprocessing.synchronize", "xml.etree.ElementTree"),
    *("numpy", "pydantic.type_adapter", "rich.console", "rich.table", "typer._adapters", "typer._click.decorators"),
    *("blockproof.fuzz.cli.main", "blockproof.fuzz.engines.fuzzing", "blockproof.fuzz.exploration.session"),
    *("blockproof.fuzz.opening.targets", "blockproof.fuzz.reports.formats", "blockproof.impl.kv_cache_coordinator"),
    *("blockproof.impl.kv_cache_utils", "blockproof.impl.managers.kv_cache_manager", "blockproof.impl.request"),
    "blockproof.impl.single_type_kv_cache_manager",
)
"""The same in our own interpreter."""
OWN_PROGRAMS = re.compile("^(import sys; )?from (blockproof.fuzz.cli.main|multiprocessing.[a-z_]+) import ")
"""What is forked in our own interpreter, beside modules of ours. Such a program has more imported than it would have by
itself: one that looks at `sys.modules` begins as ever."""
CHANGES = "blockproof.fuzz.mutation."
"""Modules with such names change an engine while they import it, and so does a file that a process is given."""
OURS = frozenset({"blockproof", "sitecustomize.py"})
"""What lies in the folder of a process without saying anything to an engine."""
OF_THE_TEST = ("BLOCKPROOF_", "COVERAGE_", "PYTEST_")
"""Variables with such names say nothing to engines, nor to what ours imports."""
OF_OURS = (
    *("COLUMNS", "HOME", "OLDPWD", "PWD", "TMPDIR", "XDG_CACHE_HOME"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED"),
)
"""Nor do these to what ours imports; the fork sees to those of Python."""
SAFE = "PYTHONSAFEPATH"
MOST = 8
"""So many servers of releases are kept, which share most of their 500 MB, and so many of ours."""
NUMBER = 300
"""The descriptor by which a server that was forked from another one is asked."""
BEGUN = "import sys; exec(compile(open(sys.argv[2]).read(), sys.argv[2], 'exec'))"
"""The program of such a server."""
STARTS_S = 120.0
ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""For the server: no threads, with which it could not be forked."""
SUBREAPER = 36
"""To `prctl`: whoever is orphaned below becomes a child."""
SHOWN = 2000
"""Bytes of a command that a list of processes shows of one of ours."""
KINDS = 16
"""Of limits, of which the last ones may not be there."""
Key = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...]]


class Start(NamedTuple):
    """What is to be started."""

    words: Sequence[str]
    """Behind the interpreter."""
    environment: Mapping[str, str]
    path: int
    """So many entries of the import path of the server are replaced by those of the environment."""
    folder: str
    session: bool
    numbers: Sequence[int]
    """Of its descriptors, the first three included."""
    given: Sequence[int]
    """What each of them is here."""
    signals: Sequence[Sequence[int]]
    """Those that are ignored, and those that are blocked."""
    first: str | None = None
    """What comes before all of the import path."""
    below: bool = False
    """It has a server of its own."""


class Server:
    """A process that has imported what others need."""

    def __init__(self, ours: socket.socket, process: int = 0) -> None:
        self._ours, self._process = ours, process
        ours.settimeout(STARTS_S)
        self.forks, path, names = json.loads(_read(ours, int(_read(ours, 8) or 0)) or "[false, [], []]")
        self.path, self.names = set(path), set(names)
        """Where it finds modules, and the first parts of the names of those that it has."""
        self.limits = _limits()

    @classmethod
    def started(cls, interpreter: Sequence[str], environment: Mapping[str, str], modules: Sequence[str]) -> "Server":
        """In this interpreter with its options. One of ours is in the group of this process, as what it forks."""
        own = interpreter == [sys.executable]
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*interpreter, str(SERVER), str(theirs.fileno()), " " * SHOWN if own else "", *modules],
                env={**environment, **ALONE},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=not own,
            )
        process.returncode = 0  # `close` waits for it
        return cls(ours, process.pid)

    def another(self, environment: Mapping[str, str], modules: Sequence[str]) -> "Server | None":
        """One that is forked from this one and has imported these modules, too."""
        ours, theirs = socket.socketpair()
        with theirs, open(os.devnull, "r+b", buffering=0) as nowhere:
            words = ["-P", "-c", BEGUN, str(NUMBER), str(SERVER), *modules]
            given = [*[nowhere.fileno()] * 3, theirs.fileno()]
            start = Start(words, {**environment, **ALONE}, 0, os.sep, True, [0, 1, 2, NUMBER], given, ([], []))
            number = self.fork(start)
        if not number:
            ours.close()
        return Server(ours, number) if number else None

    def fork(self, start: Start) -> int:
        """The number of the new process, whose parent is this one; 0 if it cannot be forked."""
        if not self.forks:
            return 0
        asked = {name: value for name, value in start._asdict().items() if name != "given"}
        text = json.dumps(asked).encode()
        libc = ctypes.CDLL(None)
        libc.prctl(SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._ours, [b"%8d" % len(text)], list(start.given))
            self._ours.sendall(text)
            return int(self._ours.recv(10))
        except (OSError, ValueError):  # it has ended
            self.forks = False
            return 0
        finally:
            libc.prctl(SUBREAPER, 0, 0, 0, 0)

    def hides(self, folders: Sequence[str]) -> bool:
        """Whether one of these that it does not look into has a module of a name that it has imported."""
        entries = {entry for folder in folders if folder not in self.path for entry in _entries(folder)}
        return any(entry.partition(".")[0] in self.names and not entry.endswith("-info") for entry in entries)

    def close(self) -> None:
        """End it."""
        self._ours.close()
        if self._process:
            with suppress(OSError):
                os.kill(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)


class Forking:
    """In place of `_posixsubprocess.fork_exec`."""

    def __init__(
        self,
        usual: Callable[..., int],
        imported: Mapping[str, Sequence[str]],
        changed: Mapping[str, Sequence[str]],
        shared: Mapping[str, Sequence[str]],
    ) -> None:
        self._usual, self._imported, self._changed, self._shared = usual, imported, changed, shared
        self._servers: dict[Key, Server] = {}
        """The one that was used last is the last."""
        self._asked = Counter[Key]()
        """How often a server of ours would have been of use."""
        self._one = threading.RLock()  # a server is started in between
        self.forked = 0

    def __call__(self, arguments: Sequence[str | bytes], executables: Sequence[bytes], *rest: Any) -> int:
        """The number of the process. The arguments are those of `_posixsubprocess.fork_exec`."""
        _, kept, folder, environment, stdin, _, _, stdout, _, stderr, _, error = rest[:12]
        session, others = rest[13], (*rest[14:19], rest[19])
        python, variables = os.fsdecode(executables[0]), _variables(environment)
        words, where = [os.fsdecode(word) for word in arguments[1:]], os.fsdecode(folder or os.getcwd())
        if others != (-1, None, None, None, -1, None):
            return self._usual(arguments, executables, *rest)
        standard = [usual if ours == -1 else ours for usual, ours in enumerate((stdin, stdout, stderr))]
        more = [number for number in kept if number != error]
        start = Start(words, variables, 0, where, bool(session), [0, 1, 2, *more], [*standard, *more], _signals())
        with self._one:
            number = self._own(start) if python == sys.executable else self._released(python, start)
            self.forked += bool(number)
        return number or self._usual(arguments, executables, *rest)

    def _released(self, python: str, start: Start) -> int:
        modules = self._modules(python, start.words, start.environment)
        if not modules:
            return 0
        server, path = self._server(python, start.environment, modules)
        return server.fork(start._replace(path=path))

    def _modules(self, python: str, words: Sequence[str], variables: Mapping[str, str]) -> Sequence[str]:
        """What is imported before the fork; nothing if the process is not to be forked."""
        base, patch, path = Path(python).parent.parent.name, variables.get(VARIABLE), _path(variables)
        if base not in self._imported.keys() | self._changed.keys() or not _is_known(words) or not path:
            return ()
        if patch and json.loads(patch)["without"]:  # it may be what is imported
            return ()
        changed = patch or any(word.endswith(".py") or word.startswith(CHANGES) for word in words)
        changed = changed or not all(map(partial(_is_below, Path(python).parents[2]), path[1:]))
        changed = changed or Path(path[0], "blockproof", "impl").exists()  # which may stand in for the engine's core
        changed = changed or not set(_entries(path[0])) <= OURS  # packages that the engine looks for as it is imported
        return (self._changed if changed else self._imported).get(base, ())

    def _server(self, python: str, variables: Mapping[str, str], modules: Sequence[str]) -> tuple[Server, int]:
        """That of this interpreter, environment and release, and the length of its import path. What comes before the
        release on the path of a process is of ours, or of a patch."""
        path = [entry for entry in _path(variables)[1:] if _is_below(Path(python).parents[2], entry)]
        said = {name: value for name, value in variables.items() if not name.startswith((*OF_THE_TEST, "PYTHONPATH"))}
        key = (python, tuple(sorted(said.items())), tuple(path), tuple(modules))
        environment = {**said, "PYTHONPATH": os.pathsep.join(path)}
        return self._kept(key) or self._start(key, [python, "-P"], environment), len(path)

    def _own(self, start: Start) -> int:
        """0 if it is no program of ours, is the first of its kind, or would find other modules than those imported."""
        variables = start.environment
        if not _is_ours(start.words) or variables.get("PYTHONHASHSEED", "0") != "0":
            return 0
        key = _own_key(variables)
        self._asked[key] += 1
        server = self._kept(key)
        if server is None and self._imported and self._asked[key] > 1:
            server = self._start(key, [sys.executable], {**dict(key[1]), "PYTHONHASHSEED": "0"})
        safe = "-P" in start.words or variables.get(SAFE)
        first = None if safe else start.folder if "-m" in start.words else ""
        path = [*_path(variables), *([] if safe else [start.folder])]
        if server is None or server.limits != _limits() or server.hides(path):
            return 0
        return server.fork(start._replace(first=first, below=True))

    def _kept(self, key: Key) -> Server | None:
        server = self._servers.pop(key, None)
        if server is not None:
            self._servers[key] = server
        return server

    def _start(self, key: Key, interpreter: Sequence[str], environment: Mapping[str, str]) -> Server:
        root = self._root(key, interpreter, environment)
        server = (root and root.another(environment, key[3])) or Server.started(interpreter, environment, key[3])
        self._servers[key] = server
        alike = [one for one in self._servers if (one[0] == sys.executable) == (key[0] == sys.executable)]
        for oldest in alike[:-MOST]:
            self._servers.pop(oldest).close()
        return server

    def _root(self, key: Key, interpreter: Sequence[str], environment: Mapping[str, str]) -> Server | None:
        """The server from which that of a release is forked."""
        shared = self._shared.get(Path(key[0]).parent.parent.name)
        if not shared or not key[2]:
            return None
        without = (*key[:2], (), tuple(shared))
        named = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
        root = self._kept(without) or self._start(without, interpreter, named)
        return None if root.hides(key[2]) else root

    def close(self) -> None:
        """End all servers."""
        for server in self._servers.values():
            server.close()


def _read(ours: socket.socket, size: int) -> bytes:
    """So many bytes; fewer if there are no more."""
    text = b""
    while len(text) < size and (more := ours.recv(size - len(text))):
        text += more
    return text


def _variables(environment: Sequence[bytes] | None) -> dict[str, str]:
    if environment is None:
        return dict(os.environ)
    pairs = (os.fsdecode(entry).partition("=") for entry in environment)
    return {name: value for name, _, value in pairs}


def _path(variables: Mapping[str, str]) -> list[str]:
    path = variables.get("PYTHONPATH")
    return path.split(os.pathsep) if path else []


def _entries(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def _is_below(folder: Path, entry: str) -> bool:
    return Path(entry).is_relative_to(folder)


def _is_known(words: Sequence[str]) -> bool:
    """`-P`, and a module of ours or a program."""
    rest = [word for word in words if word != "-u"]
    return rest[:2] == ["-P", "-c"] or (rest[:2] == ["-P", "-m"] and rest[2].startswith("blockproof."))


def _is_ours(words: Sequence[str]) -> bool:
    """No option but `-P` and `-u`, and a module or a program that is forked in our own interpreter."""
    rest = [word for number, word in enumerate(words) if number > 1 or word not in ("-P", "-u")]
    if rest[:1] == ["-c"]:
        return OWN_PROGRAMS.match(rest[1]) is not None and "sys.modules" not in rest[1]
    return rest[:1] == ["-m"] and rest[1].startswith("blockproof.")


def _own_key(variables: Mapping[str, str]) -> Key:
    said = ((name, value) for name, value in variables.items() if not name.startswith(OF_THE_TEST))
    return (sys.executable, tuple(sorted(one for one in said if one[0] not in OF_OURS)), (), OWN)


def _limits() -> list[tuple[int, int]]:
    found = list[tuple[int, int]]()
    with suppress(ValueError):
        found.extend(resource.getrlimit(kind) for kind in range(KINDS))
    return found


def _signals() -> tuple[list[int], list[int]]:
    """Those that this process ignores, and those that this thread blocks, both of which a child inherits."""
    ignored = [int(number) for number in ENDING if signal.getsignal(number) is signal.SIG_IGN]
    return ignored, [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]


def fork_below(ours: socket.socket) -> None:
    """In a process of ours that was forked: what it starts is forked by its own server, to which this socket leads."""
    made = Forking(_posixsubprocess.fork_exec, {}, {}, {})
    made._servers[_own_key(os.environ)] = Server(ours)
    _put(made)


def _put(fork_exec: Callable[..., int]) -> None:
    """In place of what `subprocess` and `multiprocessing` use."""
    _posixsubprocess.fork_exec = fork_exec
    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]


@contextmanager
def forking(
    imported: Mapping[str, Sequence[str]] = IMPORTED,
    changed: Mapping[str, Sequence[str]] = FOR_CHANGED,
    shared: Mapping[str, Sequence[str]] = SHARED,
) -> Iterator[Forking]:
    """Processes of these interpreters, and of ours, are forked meanwhile, where that can be done."""
    usual = getattr(subprocess, "_fork_exec", None)
    made = Forking(usual or (lambda *_: 0), imported, changed, shared)
    if usual is not None and sys.platform == "linux":
        _put(made)
    try:
        yield made
    finally:
        if usual is not None:
            _put(usual)
        made.close()
