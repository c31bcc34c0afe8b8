"""Makes trials in a process of its own, where the generator of another commit may take the place of `fuzz/workload`.

Nothing is imported here that would load a generator before that.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..opening.workers import Desk

if TYPE_CHECKING:
    from .trials import Trial

PACKAGE = __package__.rpartition(".")[0]


def take_generator(folder: Path) -> None:
    """Let `workload` be the package in this folder, for this process. ImportError if there is none, or it is loaded."""
    name = f"{PACKAGE}.workload"
    if name in sys.modules:
        raise ImportError(f"{name} is loaded already")
    here = Path(__file__).resolve().parents[1] / "workload"
    places = [str(folder), str(here)]
    spec = spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=places)
    if spec is None or spec.loader is None or not (folder / "__init__.py").is_file():
        raise ImportError(f"{folder} holds no generator")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def make_trial(given: tuple[Path | None, dict[str, Any]], desk: Desk) -> "Trial":
    """Make a trial of the `TrialTask` with these fields; with a folder by the generator in it, from now on."""
    generator, task = given
    if generator is not None and f"{__package__}.trials" not in sys.modules:
        take_generator(generator)
    from .trials import TrialTask, run_trial  # behind the generator that it loads

    return run_trial(TrialTask(**task))
