"""What mutants are made of: our core, or a release that the model describes exactly."""

from pathlib import Path
from typing import NamedTuple

from ..adapters import family_of, references
from ..adapters.impl import CORES, mutable_impl
from ..opening.child import Place
from ..opening.targets import interpreter_of
from ..targets.family import Mutable
from .planting import path_of


class Subject(NamedTuple):
    """A core whose modules are changed."""

    name: str
    """Its full name."""
    opened: str
    """The name under which its own interpreter opens it."""
    mutable: Mutable
    place: Place | None
    """Its interpreter; None for this one."""

    def sources(self) -> dict[str, str]:
        """The source of each module that may be changed. ValueError if one has none."""
        return {module: self._path(module).read_text(encoding="utf-8") for module in self.mutable.modules}

    def _path(self, module: str) -> Path:
        relative = Path(*module.split(".")).with_suffix(".py")
        layers = [] if self.place is None else [layer / relative for layer in self.place.layers]
        return next((path for path in layers if path.is_file()), None) or Path(path_of(module))


def subject_of(spec: str) -> Subject:
    """The subject of this name. ValueError, with what to write instead, for one that cannot be changed or has no exact
    model; TargetUnavailableError if the release is not installed."""
    if spec == next(iter(CORES)):
        return Subject(spec, spec, mutable_impl(), None)
    family = family_of(spec)
    wanted = f"write {', '.join(references())} or {next(iter(CORES))}"
    if family is None or family.mutable is None:
        raise ValueError(f"{spec!r} is no core whose mutants can be made; {wanted}")
    name, place = interpreter_of(spec)
    if name != family.spec(family.reference or ""):
        raise ValueError(f"{name} is not described exactly by the model, so that no difference tells; {wanted}")
    return Subject(name, family.name, family.mutable(), place)


def changed_of(spec: str) -> Subject:
    """The same for somebody who only reads results: the release need not be installed, and no source can be read."""
    return Subject(spec, spec, mutable_here(spec), None)


def mutable_here(opened: str) -> Mutable:
    """What may be changed of the core that this interpreter opens under this name."""
    family = family_of(opened)
    if family is None or family.mutable is None:
        return mutable_impl()
    return family.mutable()
