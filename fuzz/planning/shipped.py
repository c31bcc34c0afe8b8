"""Files that come with the installed package, under the same path as in the repository.

So what the help says (`blockproof plan examples/gemma-3-27b.json`, `blockproof findings`) works wherever blockproof is
installed; a file of that path in the current folder comes first.
"""

from importlib.util import find_spec
from pathlib import Path

FINDINGS = Path("docs/evidence/findings")
DEVIATIONS = tuple(Path("docs/evidence") / name for name in ("deviations", "today-deviations", "between-deviations"))
"""Traces of the deviations of 0.23.0, of 0.33.0, and of the releases between them."""
EXAMPLES = Path("examples")
THEOREMS = Path("docs/reference/theorems")
REGRESSIONS = Path("tests/regressions")
"""Not looked for in the current folder: those there are somebody's own."""
QUESTIONS = "questions"
"""The folder in it with questions about configurations."""
_ROOT = __name__.partition(".")[0]


def shipped(path: Path) -> Path:
    """The path itself, or where the package has it if there is no such file here.

    A path that is neither here nor in the package comes back as it is, for whoever reads it to say so.
    """
    if path.exists():
        return path
    for folder in (FINDINGS, *DEVIATIONS, EXAMPLES, THEOREMS):
        if path.is_relative_to(folder):
            found = [place / path.relative_to(folder) for place in _places(folder)]
            return next((file for file in found if file.exists()), path)
    return path


def shipped_model(name: Path) -> Path:
    """The description of a model: a path (see `shipped`), or the bare name of an example (`gemma-3-27b`)."""
    example = shipped(EXAMPLES / f"{name}.json")
    is_bare = len(name.parts) == 1 and not name.exists()
    return example if is_bare and example.exists() else shipped(name)


def installed_regressions() -> Path:
    """The folder with the traces of real bugs (docs/evidence/real-bugs.md). FileNotFoundError if it is not there."""
    for place in _places(REGRESSIONS):
        if place.is_dir():
            return place
    raise FileNotFoundError("the traces of real bugs are not part of this installation: install blockproof anew")


def is_of_real_bug(path: Path) -> bool:
    """Whether this file is one of those."""
    return any(path.resolve().is_relative_to(place.resolve()) for place in _places(REGRESSIONS))


def _places(folder: Path) -> list[Path]:
    """Where the package has a folder; an editable installation lists things that are no folders beside it."""
    spec = find_spec(".".join([_ROOT, *folder.parts]).replace("-", "_"))  # a package has no dash in its name
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec is not None else []
