"""What mutants are made of, our core or a release that the model describes exactly, and how a changed source takes the
place of a module that is loaded: in this process alone, nothing is written.

The module and all that hold something of it are read again. This runs in the interpreter of a release, where only the
standard library and the release are installed.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from ..adapters import described, family_of
from ..adapters.impl import CHANGED_CORES, mutable_impl
from ..opening.child import PythonPlace
from ..opening.targets import interpreter_of
from ..targets.family import Mutable


def dependents(modules: Iterable[str], package: str) -> list[str]:
    """The loaded modules of these names, and those of the package that hold one of them, or a class or function of
    one, or that of one of these in turn; in the order in which they were loaded."""
    found = {name for name in modules if name in sys.modules}
    loaded = {name: module for name, module in sys.modules.items() if f"{name}.".startswith(f"{package}.")}
    while more := {name for name, module in loaded.items() if name not in found and _holds(name, module, found)}:
        found |= more
    return [name for name in sys.modules if name in found]


def read_again(names: Sequence[str], module: str, source: str) -> None:
    """Load these modules anew, `module` among them from this source. Errors as when they are imported."""
    changed = _Changed(module, source, getattr(sys.modules[module], "__file__", None) or module)
    for name in names:
        del sys.modules[name]
    sys.meta_path.insert(0, changed)
    try:
        for name in names:
            import_module(name)
    finally:
        sys.meta_path.remove(changed)


class _Changed(InspectLoader):
    """Finds one module, and loads it from a text."""

    def __init__(self, module: str, source: str, path: str) -> None:
        self._module, self._source, self._path = module, source, path

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        return spec_from_loader(name, self, origin=self._path) if name == self._module else None

    def get_source(self, fullname: str) -> str:
        """The changed source."""
        return self._source

    def get_code(self, fullname: str) -> CodeType:
        """The changed source, compiled as if it stood in the file: places in tracebacks are those of the file."""
        return compile(self._source, self._path, "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        """False: packages are not changed."""
        return False

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source in the module."""
        module.__file__ = self._path
        exec(self.get_code(self._module), vars(module))


def path_of(module: str) -> str:
    """The file of a module. ValueError if it has none."""
    spec = find_spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise ValueError(f"{module} has no source to change")
    return spec.origin


def _holds(name: str, module: ModuleType, found: set[str]) -> bool:
    return any(_module_of(value, name) in found for value in list(vars(module).values()))


def _module_of(value: object, holder: str) -> str | None:
    """The module that a value is or comes from; None for a module below its holder, which has it by being imported."""
    if isinstance(value, ModuleType):
        return None if value.__name__.startswith(f"{holder}.") else value.__name__
    owner = value if isinstance(value, type) or type(value).__name__ == "function" else type(value)
    return getattr(owner, "__module__", None)


class Subject(NamedTuple):
    """A core whose modules are changed."""

    name: str
    """Its full name."""
    opened: str
    """The name under which its own interpreter opens it."""
    mutable: Mutable
    place: PythonPlace | None
    """Its interpreter; None for this one."""

    def sources(self) -> dict[str, str]:
        """The source of each module that may be changed, of those that this release has. ValueError if one has none."""
        paths = {module: self._path(module) for module in self.mutable.modules}
        return {module: path.read_text(encoding="utf-8") for module, path in paths.items() if path is not None}

    def _path(self, module: str) -> Path | None:
        relative = Path(*module.split(".")).with_suffix(".py")
        if self.place is None:
            return Path(path_of(module))
        return next((path for layer in self.place.layers if (path := layer / relative).is_file()), None)


def subject_of(spec: str) -> Subject:
    """The subject of this name. ValueError, with what to write instead, for one that cannot be changed or has no exact
    model; TargetUnavailableError if the release is not installed."""
    if spec in CHANGED_CORES:
        return Subject(spec, spec, mutable_impl(spec), None)
    family = family_of(spec)
    wanted = f"write {', '.join(described())} or {' or '.join(CHANGED_CORES)}"
    if family is None or family.mutable is None:
        raise ValueError(f"{spec!r} is no core whose mutants can be made; {wanted}")
    name, place = interpreter_of(spec)
    if name not in described():
        raise ValueError(f"{name} is not described exactly by the model, so that no difference tells; {wanted}")
    return Subject(name, family.name, family.mutable(), place)


def changed_of(spec: str) -> Subject:
    """The same for somebody who only reads results: the release need not be installed, and no source can be read."""
    return Subject(spec, spec, mutable_here(spec), None)


def mutable_here(opened: str) -> Mutable:
    """What may be changed of the core that this interpreter opens under this name."""
    family = family_of(opened)
    if family is None or family.mutable is None:
        return mutable_impl(opened)
    return family.mutable()
