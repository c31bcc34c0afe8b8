"""A process that makes trials: it reads a task a line and answers each with a line. Ctrl-C is for its parent to hear.

python -m blockproof.fuzz.detection.worker [FOLDER]

FOLDER holds the generator of another commit, which takes the place of `fuzz/workload`; what it lacks is taken from
there.
"""

import signal
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import msgspec

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


def main() -> int:
    """Answer until there are no more tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if len(sys.argv) > 1:
        take_generator(Path(sys.argv[1]))
    from .trials import Task, run_trial  # behind the generator that they load

    answers, sys.stdout = sys.stdout, sys.stderr  # a target may print
    for line in sys.stdin:
        trial = run_trial(msgspec.json.decode(line, type=Task))
        answers.write(msgspec.json.encode(trial).decode() + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
