"""Compiles the hot folders of the core with Cython and a C compiler; the rest of the package goes along as it is."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from .place import MANIFEST, PACKAGE, SOURCES, builds, built, digest, digest_of_sources, sources

HOT = ("pool", "managers", "hashing", "request.py", "today")
"""What is compiled: folders and modules of the core."""
DIRECTIVES = {"language_level": "3", "annotation_typing": "False", "binding": "True", "nonecheck": "True"}
"""Annotations are not taken for C types, since a subclass of what they name has to do as well; the .pxd files say which
are. None where one of these is expected is an AttributeError, as in Python."""
FLAGS = ("-O2", "-g0", "-w", "-fPIC", "-shared", "-fwrapv", "-fno-strict-aliasing")
UNFINISHED = "unfinished-"
KEPT = 4
"""So many builds are kept, the latest ones."""


class BuildError(OSError):
    """The core cannot be compiled here; the message says why, in one line but for what a compiler said."""


def hot_modules() -> list[Path]:
    """The modules that are compiled, relative to the core's folder."""
    return [path for path in sources() if path.parts[0] in HOT and path.suffix == ".py" and path.name != "__init__.py"]


def build(again: bool = False, say: Callable[[str], None] = lambda line: None) -> Path:
    """Compile the present sources, unless that is done already. Returns the package folder.

    Modules that have not changed since an earlier build are taken from there, unless `again`. BuildError without
    Cython or a C compiler, or if one of them refuses.
    """
    if (there := built()) is not None and not again:
        return there
    if find_spec("Cython") is None:
        raise BuildError("Cython is not installed; run: pip install '/path/to/blockproof[fast]'")
    home, before = builds(), digest_of_sources()
    home.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=home, prefix=UNFINISHED))
    try:
        _make(work.joinpath(*PACKAGE.split(".")), before, home, again, say)
        if digest_of_sources() != before:
            raise BuildError("the sources changed while they were compiled; run it again")
        shutil.rmtree(home / before, ignore_errors=True)
        os.replace(work, home / before)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for manifest in sorted(_manifests(home), key=lambda found: found.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(home / manifest.relative_to(home).parts[0], ignore_errors=True)
    there = built()
    if there is None:
        raise AssertionError(f"what was built stands in {home / before}")
    return there


def _make(folder: Path, made_from: str, home: Path, again: bool, say: Callable[[str], None]) -> None:
    """Fill the package folder: copies of the sources, extension modules, and what they were made from."""
    for path in sources():
        if path.parts[0] != Path(__file__).parent.name:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(SOURCES / path, folder / path)
    keys = {str(path): _key(folder, path) for path in hot_modules()}
    missing = [path for path in hot_modules() if again or not _taken_over(folder / path, keys[str(path)], home)]
    say(f"compiling {len(missing)} of {len(keys)} modules")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda path: _compile(folder, path), missing))
    for rest in [*folder.rglob("*.c"), *folder.rglob("*.pxd")]:
        rest.unlink()
    (folder / MANIFEST).write_text(json.dumps({"sources": made_from, "modules": keys}, indent=1), encoding="utf-8")


def _manifests(home: Path) -> Iterator[Path]:
    """Of all finished builds."""
    depth = "/".join("*" for _ in PACKAGE.split("."))
    every = home.glob(f"*/{depth}/{MANIFEST}")
    return (found for found in every if not found.relative_to(home).parts[0].startswith(UNFINISHED))


def _key(folder: Path, path: Path) -> str:
    """Names all that the C code of a module depends on. C types of others reach it only through its own .pxd."""
    typed = (folder / path).with_suffix(".pxd").is_file()
    told = [declared.read_bytes() for declared in sorted(folder.rglob("*.pxd")) if typed]
    how = f"{sorted(DIRECTIVES.items())} {FLAGS} {PACKAGE} {version('Cython')}"
    mine = Path(__file__).read_bytes()
    return digest(mine, how.encode(), str(path).encode(), (folder / path).read_bytes(), *told)


def _taken_over(module: Path, key: str, home: Path) -> bool:
    """Copy the compiled module of an earlier build that was made from the same."""
    for manifest in _manifests(home):
        for name, made_from in json.loads(manifest.read_text(encoding="utf-8"))["modules"].items():
            earlier = _binary(manifest.parent / name)
            if made_from == key and earlier.is_file():
                shutil.copyfile(earlier, _binary(module))
                return True
    return False


def _binary(module: Path) -> Path:
    return module.with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))


def _compile(folder: Path, path: Path) -> None:
    """Make the extension module that stands beside a copy of its source."""
    module = ".".join([PACKAGE, *path.with_suffix("").parts])
    options = [f"--directive={name}={value}" for name, value in DIRECTIVES.items()]
    source = folder / path
    c_file = source.with_suffix(".c")
    cython = [
        sys.executable,
        "-P",
        "-m",
        "cython",
        *options,
        "-I",
        str(folder.parents[1]),
        "--module-name",
        module,
        str(source),
        "-o",
        str(c_file),
    ]
    _run(cython, path, folder.parents[1])
    headers = f"-I{sysconfig.get_path('include')}"
    _run([*_compiler(), *FLAGS, headers, str(c_file), "-o", str(_binary(source))], path, folder.parents[1])


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc"))[:1]


def _run(command: list[str], path: Path, folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        raise BuildError(f"there is no C compiler {command[0]}: install one, or set CC") from None
    if done.returncode:
        said = "\n".join(_last_lines(done.stderr or done.stdout))
        raise BuildError(f"{path} could not be compiled by {Path(command[0]).name}:\n{said}")


def _last_lines(text: str) -> Iterator[str]:
    return iter(text.strip().splitlines()[-20:])
