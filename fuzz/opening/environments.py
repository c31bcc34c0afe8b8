"""Installs releases of engines, each in a Python environment of its own, under the user's cache directory.

An environment has two parts. The *layer* has the Python files of one release. The *base* has what all releases of a
family need (torch and some pure Python packages) and the interpreter; it is installed once for each family. So another
release takes seconds and megabytes, not minutes and gigabytes.

Base and layer are built under temporary names and renamed when they are complete, so one with its final name is always
complete. What an interrupted installation leaves behind is removed by the next one.
"""

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from uuid import uuid4
from zipfile import BadZipFile, ZipFile

from ..adapters import families, family_of, forms
from ..targets.base import TargetUnavailableError
from ..targets.family import Family
from .child import PythonPlace
from .commands import run

_MARKER = "blockproof-target.json"
_BASE_MARKER = "blockproof-base.json"
_PARTIAL = ".partial-"
_TRASH = ".trash-"
_PIP_OPTIONS = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--progress-bar", "off"]


class InstallError(TargetUnavailableError):
    """An environment could not be installed; the message, one line, says why."""


@dataclass(frozen=True)
class Environment:
    """An installed release."""

    name: str
    """Full name of the release, `NAME==VERSION`."""
    path: Path
    """Folder of its layer."""
    base: Path
    """Folder of its base."""
    versions: Mapping[str, str]
    """Versions of the engine, of torch and of Python."""

    @property
    def place(self) -> PythonPlace:
        """Interpreter and layer, for a child process."""
        return PythonPlace(_python_in(self.base), (self.path,))


def home() -> Path:
    """Folder of all environments: blockproof/targets in $BLOCKPROOF_HOME, else in the user's cache directory."""
    if own := os.environ.get("BLOCKPROOF_HOME"):
        cache = Path(own).expanduser()
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache.absolute() / "blockproof" / "targets"


def release_in(spec: str) -> tuple[Family, str]:
    """Family and version in `NAME==VERSION`. ValueError for anything else."""
    family = family_of(spec)
    if family is None:
        raise ValueError(f"{spec!r} names no release; write one of {forms()}")
    return family, family.version_in(spec)


def installed(family: Family | None = None) -> list[Environment]:
    """All complete environments of this family, or of all families, oldest release first."""
    chosen = families().values() if family is None else (family,)
    return [environment for one in chosen for environment in _installed(one)]


def find(spec: str) -> Environment | None:
    """The environment of this release; None if it is not installed. ValueError unless `spec` is `NAME==VERSION`."""
    family, version = release_in(spec)
    return _read(family, _layer_of(family, version))


def remove(spec: str) -> bool:
    """Delete the environment of this release, complete or not; after the last release of a family also the base.

    False if nothing was installed.
    """
    family, version = release_in(spec)
    layer, base = _layer_of(family, version), _base_of(family)
    with _lock():
        partial = _partial_of(layer)
        was_there = layer.exists() or partial.exists()
        _discard(layer, partial)
        if not _installed(family):
            _discard(base, _partial_of(base))
    return was_there


def install(spec: str, say: Callable[[str], None], check: Callable[[Family, PythonPlace], str]) -> Environment:
    """Install the environment of this release, unless it is installed already. Returns the environment.

    `say` is called with a line of progress before each step. `check` tries the release out in the given place and
    returns its version, or raises TargetUnavailableError. InstallError if a step fails. If anything ends the
    installation early, Ctrl-C included, the incomplete parts do not count as an environment.
    """
    family, version = release_in(spec)
    layer, base = _layer_of(family, version), _base_of(family)
    with _lock():
        environment = find(spec)
        if environment is not None and _is_current(family, base):
            say(f"{spec} is installed already")
            return environment
        partials = [_partial_of(base), _partial_of(layer)]
        _discard(*partials, *home().glob(f"{_TRASH}*"))
        try:
            if not _is_current(family, base):
                _build_base(family, partials[0], say)
                _discard(base)
                partials[0].rename(base)
            _build_layer(spec, base, partials[1], say)
            say("checking that it runs")
            found = check(family, PythonPlace(_python_in(base), (partials[1],)))
            (partials[1] / _MARKER).write_text(json.dumps({"layer": spec, "version": found}))
            _discard(layer)
            partials[1].rename(layer)
        except (OSError, BadZipFile) as error:
            raise InstallError(f"installing {spec} failed: {error}") from error
        finally:
            if any(map(Path.exists, partials)):
                say("removing what was installed so far, in the background")
                _discard(*partials)
    environment = find(spec)
    if environment is None:
        raise InstallError(f"{spec}: the environment at {layer} vanished while it was installed; try again")
    return environment


def _build_base(family: Family, path: Path, say: Callable[[str], None]) -> None:
    """Build the base of a family in this folder."""
    pip = [*_pip_of(path), "install", *_PIP_OPTIONS]
    requirements = path / "requirements.txt"
    _step(say, "creating the environment that the releases share", [sys.executable, "-P", "-m", "venv", str(path)])
    requirements.write_text(family.requirements)
    if family.torch:
        _step(say, f"installing {family.torch}", [*pip, family.torch])
    # Without their dependencies: one of them might ask for another version of torch.
    _step(say, "installing the pure dependencies of the releases", [*pip, "--no-deps", "-r", str(requirements)])
    torch = next(iter(path.glob("lib/python*/site-packages/torch-*.dist-info")), None)
    versions = {"torch": torch.name.removeprefix("torch-").removesuffix(".dist-info")} if torch else {}
    versions["python"] = ".".join(map(str, sys.version_info[:3]))
    (path / _BASE_MARKER).write_text(json.dumps({"digest": _digest(family), "versions": versions}))


def _build_layer(spec: str, base: Path, path: Path, say: Callable[[str], None]) -> None:
    """Unpack the Python files and the metadata of a release into this folder; the rest of its wheel is for GPUs."""
    family, version = release_in(spec)
    wheels = path / "wheel"
    command = [*_pip_of(base), "download", *_PIP_OPTIONS, "--no-deps", "--only-binary", ":all:", "--dest", str(wheels)]
    wheels.mkdir(parents=True)
    _step(say, f"downloading {spec}", [*command, f"{family.distribution}=={version}"])
    say("unpacking what is needed of it")
    patterns = (*family.keeps, "*.dist-info/*")
    for wheel in wheels.iterdir():
        with ZipFile(wheel) as archive:
            kept = [name for name in archive.namelist() if any(fnmatch(name, wanted) for wanted in patterns)]
            archive.extractall(path, kept)
        wheel.unlink()
    wheels.rmdir()


def _step(say: Callable[[str], None], step: str, command: list[str]) -> None:
    say(step)
    _run(command, step)


def _run(command: list[str], step: str) -> None:
    """Run the command of one step. InstallError, with the last line that names an error, if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = run(command, environment=clean, together=True)
    if ran.status:
        offline = "; the package index cannot be reached" if "connection broken by" in ran.output else ""
        raise InstallError(f"{step} failed: {ran.error}{offline}")


def _discard(*paths: Path) -> None:
    """Rename these folders at once, and delete them in another process: deleting takes too long for a Ctrl-C."""
    trash = []
    for path in filter(Path.exists, paths):
        trash.append(path.with_name(_TRASH + uuid4().hex))
        path.rename(trash[-1])
    if trash:
        quiet = subprocess.DEVNULL
        subprocess.Popen(
            ["rm", "-rf", "--", *map(str, trash)], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )


def _installed(family: Family) -> list[Environment]:
    found = [(path, _read(family, path)) for path in home().glob(f"{family.name}-*")]
    return [environment for path, environment in sorted(found, key=lambda pair: _order(pair[0])) if environment]


def _order(path: Path) -> list[tuple[int, str]]:
    """Sort key of an environment's folder, with versions as numbers: 0.9 before 0.10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"[.-]|(?<=\d)(?=[a-z])", path.name)]


def _read(family: Family, layer: Path) -> Environment | None:
    """The environment with this layer; None unless layer and base are both complete."""
    base = _base_of(family)
    try:
        marker = json.loads((layer / _MARKER).read_text())
        versions = json.loads((base / _BASE_MARKER).read_text())["versions"]
        return Environment(marker["layer"], layer, base, {family.name: marker["version"], **versions})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_current(family: Family, base: Path) -> bool:
    """True if the base is complete and has the requirements that the family has now."""
    try:
        return bool(json.loads((base / _BASE_MARKER).read_text())["digest"] == _digest(family))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _digest(family: Family) -> str:
    """A digest of the base's requirements."""
    return hashlib.sha256(f"{family.torch}\n{family.requirements}".encode()).hexdigest()


def _layer_of(family: Family, version: str) -> Path:
    return home() / f"{family.name}-{version}"


def _base_of(family: Family) -> Path:
    return home() / f"base-{family.name}"


def _partial_of(path: Path) -> Path:
    return path.with_name(_PARTIAL + path.name)


def _python_in(path: Path) -> Path:
    return path / "bin" / "python"


def _pip_of(path: Path) -> list[str]:
    return [str(_python_in(path)), "-P", "-m", "pip"]


@contextmanager
def _lock() -> Iterator[None]:
    """Allows one installation or removal at a time. InstallError if another process is installing or removing."""
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
