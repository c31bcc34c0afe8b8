"""Processes of releases are forked from one that has imported the engine, which takes up to ten seconds each time.

What forks is `fork_server`, in the release's interpreter and with the same environment; each process begins with the
import of our modules and runs the command that it was given. It is a child of the test, which sees its exit status or
the signal that ended it. Of an engine that is changed only what is not its own is imported once; and what a command
starts that a test runs in a process of its own is no child of the test.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
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
CHANGES = "blockproof.fuzz.mutation."
"""Modules with such names change an engine while they import it, and so does a file that a process is given."""
OURS = frozenset({"blockproof", "sitecustomize.py"})
"""What lies in the folder of a process without saying anything to an engine."""
OF_THE_TEST = ("BLOCKPROOF_", "COVERAGE_", "PYTEST_")
"""Variables with such names say nothing to engines."""
MOST = 4
"""So many servers are kept; each has some 500 MB."""
STARTS_S = 120.0
ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""For the server: no threads, with which it could not be forked."""
SUBREAPER = 36
"""To `prctl`: whoever is orphaned below becomes a child."""
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


class Server:
    """A process with an engine in it."""

    def __init__(self, python: str, environment: Mapping[str, str], modules: Sequence[str]) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(STARTS_S)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-P", str(SERVER), str(theirs.fileno()), *modules],
                env={**environment, **ALONE},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.forks = self._ours.recv(1) == b"1"

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

    def close(self) -> None:
        """End it."""
        self._ours.close()
        self._process.kill()
        self._process.wait()


class Forking:
    """In place of `subprocess._fork_exec`."""

    def __init__(
        self, usual: Callable[..., int], imported: Mapping[str, Sequence[str]], changed: Mapping[str, Sequence[str]]
    ) -> None:
        self._usual, self._imported, self._changed = usual, imported, changed
        self._servers: dict[Key, Server] = {}
        """The one that was used last is the last."""
        self._one = threading.Lock()
        self.forked = 0

    def __call__(self, arguments: Sequence[str | bytes], executables: Sequence[bytes], *rest: Any) -> int:
        """The number of the process. The arguments are those of `_posixsubprocess.fork_exec`."""
        _, kept, folder, environment, stdin, _, _, stdout, _, stderr, _, error = rest[:12]
        session, others = rest[13], (*rest[14:19], rest[19])
        python, variables = os.fsdecode(executables[0]), _variables(environment)
        words = [os.fsdecode(word) for word in arguments[1:]]
        modules = self._modules(python, words, variables)
        if not modules or others != (-1, None, None, None, -1, None):
            return self._usual(arguments, executables, *rest)
        standard = [usual if ours == -1 else ours for usual, ours in enumerate((stdin, stdout, stderr))]
        more = [number for number in kept if number != error]
        where = os.fsdecode(folder or os.getcwd())
        with self._one:
            server, path = self._server(python, variables, modules)
            start = Start(words, variables, path, where, bool(session), [0, 1, 2, *more], [*standard, *more])
            number = server.fork(start)
            self.forked += bool(number)
        return number or self._usual(arguments, executables, *rest)

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
        server = self._servers.pop(key, None) or Server(python, {**said, "PYTHONPATH": os.pathsep.join(path)}, modules)
        self._servers[key] = server
        for oldest in [*self._servers][:-MOST]:
            self._servers.pop(oldest).close()
        return server, len(path)

    def close(self) -> None:
        """End all servers."""
        for server in self._servers.values():
            server.close()


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


@contextmanager
def forking(
    imported: Mapping[str, Sequence[str]] = IMPORTED, changed: Mapping[str, Sequence[str]] = FOR_CHANGED
) -> Iterator[Forking]:
    """Processes of these interpreters are forked meanwhile, where that can be done."""
    usual = getattr(subprocess, "_fork_exec", None)
    made = Forking(usual or (lambda *_: 0), imported, changed)
    with pytest.MonkeyPatch.context() as patch:
        if usual is not None and sys.platform == "linux":
            patch.setattr(subprocess, "_fork_exec", made)
        try:
            yield made
        finally:
            made.close()
