"""How our own core is imported: by name, so that the harness also works where it is not installed. It comes as it is,
or compiled from the same files."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

PACKAGE = f"{__name__.split('.')[0]}.impl"


def module_of_impl(name: str) -> Any:
    """A module of our core, by its name in the package."""
    return import_module(f"{PACKAGE}.{name}")


def package_of_compiled() -> str:
    """The package of the compiled core. ImportError, with what to run, if there is none."""
    package: str = import_module(f"{PACKAGE}.compiled").load().__name__
    return package


def install_impl(compiled: bool) -> None:
    """Put our core in place of that of the engine in this Python environment, before anything imports that."""
    import_module(f"{package_of_compiled() if compiled else PACKAGE}.compat").install()


def compile_impl(again: bool, say: Callable[[str], None]) -> Path:
    """Compile our core, unless that is done or `again` says to; `say` is told how far it is. Returns its folder.

    OSError, with the reason, where it cannot be compiled.
    """
    folder: Path = import_module(f"{PACKAGE}.compiled.building").build(again, say)
    return folder


def compiled_impl() -> Path | None:
    """The folder of the compiled core, or None if the present sources have not been compiled."""
    folder: Path | None = import_module(f"{PACKAGE}.compiled.place").built()
    return folder


def wheel_of_compiled_impl(out: Path) -> Path:
    """Put the compiled core into a wheel in this folder; returns its path. OSError if it cannot be written."""
    wheel: Path = import_module(f"{PACKAGE}.compiled.packing").pack(out)
    return wheel
