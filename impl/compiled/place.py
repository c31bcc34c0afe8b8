"""Where the compiled build of these sources lies, and how it is imported.

A build is named after what it was made from, so one that does not belong to the sources is never found.
"""

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).parents[1]
"""The folder of the core."""
PACKAGE = f"{__name__.split('.')[0]}.impl_compiled"
"""The name under which the build is imported."""
MANIFEST = "built_from.json"
"""In a build: what it and each of its modules were made from."""


class NotBuiltError(ImportError):
    """There is no compiled build of these sources; the message is one line, with the command that makes it."""


def builds() -> Path:
    """Folder of all builds: blockproof/compiled in $BLOCKPROOF_HOME, else in the user's cache directory."""
    own = os.environ.get("BLOCKPROOF_HOME")
    cached = Path(own).expanduser() if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cached.absolute() / "blockproof" / "compiled"


def sources() -> Iterator[Path]:
    """What a build is made from, relative to `SOURCES`: the core's modules, and the C types that Cython is told."""
    for path in sorted(SOURCES.rglob("*.p[yx]*")):
        if path.suffix in (".py", ".pxd"):
            yield path.relative_to(SOURCES)


def digest_of_sources() -> str:
    """Names the content of all sources; what compiles them is one of them."""
    return digest(*(b"%s %d %s" % (str(path).encode(), len(raw), raw) for path, raw in _contents()))


def digest(*parts: bytes) -> str:
    """Names these parts and the Python that is to run what is made from them."""
    platform = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    return hashlib.sha256(b"\0".join([platform.encode(), *parts])).hexdigest()[:20]


def built() -> Path | None:
    """The package folder of the build of the present sources, or None."""
    folder = builds().joinpath(digest_of_sources(), *PACKAGE.split("."))
    return folder if (folder / MANIFEST).is_file() else None


@cache
def load() -> ModuleType:
    """The compiled core, imported once for each process. NotBuiltError if these sources have not been compiled."""
    folder = built()
    if folder is None:
        return _installed()
    spec = spec_from_file_location(PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None:
        raise AssertionError(f"{folder}: a folder with an __init__.py can be imported")
    if spec.loader is None:
        raise AssertionError(f"{folder}: a folder with an __init__.py can be imported")
    module = sys.modules[PACKAGE] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[PACKAGE]
        raise
    return module


def _installed() -> ModuleType:
    """The build that somebody has installed, if it is one of these sources."""
    remedy = "run: blockproof fast (it needs a C compiler and Cython: pip install '/path/to/blockproof[fast]')"
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise NotBuiltError(f"our core has not been compiled from its present sources; {remedy}")
    manifest = Path(found.origin).with_name(MANIFEST)
    if not manifest.is_file() or digest_of_sources() not in manifest.read_text(encoding="utf-8"):
        raise NotBuiltError(f"{manifest.parent} was compiled from other sources than those installed; {remedy}")
    return import_module(PACKAGE)


def _contents() -> Iterator[tuple[Path, bytes]]:
    return ((path, (SOURCES / path).read_bytes()) for path in sources())
