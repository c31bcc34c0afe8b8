"""Packages of the index that are put beside a release (`--with`): each unpacked once, in a folder of its own.

A package that cannot be built here, since its build needs a device or a compiler, is taken as its sources: its Python
files are what changes an engine's memory.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from uuid import uuid4

from ..targets.family import Family
from .child import PythonPlace
from .commands import Ran, run
from .environments import InstallError, home
from .patches import Patch

_PIP = ("--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--progress-bar", "off", "--no-deps")
SECONDS = 600.0
"""What fetching one package may take."""


def with_packages(patch: Patch, family: Family, place: PythonPlace | None) -> tuple[Patch, list[Path]]:
    """The patch with the full names of its packages, and where these are. They are fetched if they are not there.

    InstallError if that fails.
    """
    found = [_fetched(name, place) for name in patch.packages]
    for _, path in found:
        if (path / (family.module or family.name)).is_dir():
            what = f"{path.name} has a module {family.module or family.name} of its own, in place of the release's"
            raise InstallError(f"--with: {what}; leave it out")
    return replace(patch, packages=tuple(name for name, _ in found)), [path for _, path in found]


def plugins_in(folders: Sequence[Path], family: Family) -> list[str]:
    """What the engine would call by itself of the packages in these folders, as `--patch` names it: the functions in
    the entry points of its groups of plugins, `ENGINE.general_plugins` and the like."""
    module = family.module or family.name
    places = distributions(path=[str(folder.expanduser()) for folder in folders])
    found = [entry for one in places for entry in one.entry_points]
    return sorted({entry.value for entry in found if re.fullmatch(rf"{re.escape(module)}\.\w*plugins", entry.group)})


def _fetched(package: str, place: PythonPlace | None) -> tuple[str, Path]:
    """The full name of a package, and the folder with its modules."""
    folder = home() / "packages"
    name, _, version = package.partition("==")
    if version and (there := folder / f"{_canonical(name)}-{version}").is_dir():
        return package, there
    python = str(place.python) if place is not None else sys.executable
    print(f"blockproof: fetching {package}", file=sys.stderr)
    partial = folder / f".partial-{uuid4().hex}"
    try:
        partial.mkdir(parents=True)
        modules = _wheel_of(package, python, partial) or _sources_of(package, python, partial)
        found = _version_in(modules, name)
        path = folder / f"{_canonical(name)}-{found}"
        if not path.exists():
            modules.rename(path)
        return f"{name}=={found}", path
    except OSError as error:
        raise InstallError(f"{package} could not be put beside the release: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _wheel_of(package: str, python: str, folder: Path) -> Path | None:
    """Where a wheel of the package was unpacked; None if there is none for this interpreter."""
    path = folder / "modules"
    ran = _pip(python, "install", *_PIP, "--only-binary", ":all:", "--target", str(path), package)
    return path if not ran.status else None


def _sources_of(package: str, python: str, folder: Path) -> Path:
    """The Python packages in the sources of a package. InstallError if there are no sources, either."""
    scratch = folder / "scratch"
    scratch.mkdir()
    # Its build is begun, to find out what it needs, and may fail: what was unpacked for it is left there.
    options = (*_PIP, "--no-clean", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(folder / "archive"))
    ran = _pip(python, "download", *options, package, more={"TMPDIR": str(scratch)})
    roots = [info.parent for info in scratch.glob("*/*/PKG-INFO")]
    if not roots:
        raise InstallError(f"{package} cannot be fetched: {ran.error}")
    root, modules = roots[0], folder / "modules"
    below = root / "src" if (root / "src").is_dir() else root
    found = [path for path in below.iterdir() if (path / "__init__.py").is_file()]
    if not found:
        raise InstallError(f"{package}: its sources have no Python package; unpack them, and name a folder with --path")
    for path in found:
        shutil.copytree(path, modules / path.name)
    _describe(root, modules)
    return modules


def _describe(root: Path, modules: Path) -> None:
    """Give the modules the metadata of their package, which it may ask for."""
    text = (root / "PKG-INFO").read_text(encoding="utf-8", errors="replace")
    said = dict(re.findall(r"^(Name|Version): (\S+)", text, re.MULTILINE))
    folder = modules / f"{re.sub('[-.]+', '_', said['Name'])}-{said['Version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(text, encoding="utf-8")
    for entries in root.glob("*.egg-info/entry_points.txt"):
        shutil.copy(entries, folder)


def _version_in(modules: Path, name: str) -> str:
    wanted = _canonical(name)
    for info in modules.glob("*.dist-info"):
        one, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        if _canonical(one) == wanted:
            return version
    raise InstallError(f"{name}: what was fetched does not say its version")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip(python: str, *words: str, more: Mapping[str, str] | None = None) -> Ran:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return run(
        [python, "-P", "-m", "pip", *words], seconds=SECONDS, environment={**clean, **(more or {})}, together=True
    )
