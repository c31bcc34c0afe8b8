"""Writes the files that somebody with an engine begins with, a target that runs and its test; and a quick check that a
target works at all.
"""

import keyword
import re
import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ...model.ops import Allocate, Done, Free, Group, Lookup, Outcome, Refused, Shape, Submit
from ..findings.writing import write_file
from ..targets.base import Target, TargetLostError, TargetUnavailableError
from ..targets.family import Family
from .child import ChildTarget, PythonPlace

_TEMPLATES = {"{module}.py": "new_target.py.txt", "test_{module}.py": "new_target_test.py.txt"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")


@dataclass(frozen=True)
class NewTarget:
    """The files that were written."""

    target: Path
    test: Path

    @property
    def spec(self) -> str:
        """The target's name for `--target`."""
        return f"{self.target}:make_target"

    def commands(self) -> list[str]:
        """What to run next."""
        return commands(self.target)

    def lines(self) -> list[str]:
        """What to tell the user."""
        check, fuzz = self.commands()
        return [
            f"wrote {self.target} and {self.test}; they run as they are, on a naive core:",
            f"  {check}",
            f"  {fuzz}",
        ]


def commands(target: Path) -> list[str]:
    """The check of a target in this file, and its first run."""
    spec = shlex.quote(f"{target}:make_target")
    return [f"blockproof targets check {spec}", f"blockproof fuzz --target {spec} --seconds 10"]


def write_target(name: str, folder: Path) -> NewTarget:
    """Write a target for the engine of this name into a folder, which is made. Nothing is overwritten.

    ValueError for a name that cannot name a module, and if a file is there already.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ValueError(f"{name!r} names no module: write letters, digits, - and _, as in my-engine")
    module = name.replace("-", "_").lower() + "_target"
    paths = [folder / pattern.format(module=module) for pattern in _TEMPLATES]
    if there := [path for path in paths if path.exists()]:
        raise ValueError(f"{there[0]} is there already, and is left as it is; choose another name, or --folder")
    check, fuzz = commands(paths[0])
    words = {
        "COMMAND_CHECK": check,
        "COMMAND_FUZZ": fuzz,
        "CLASS": "".join(part.capitalize() for part in re.split("[-_]", name)),
        "MODULE": module,
        "NAME": name,
    }
    for path, template in zip(paths, _TEMPLATES.values(), strict=True):
        text = files(__package__).joinpath(template).read_text(encoding="utf-8")
        for placeholder, word in words.items():
            text = text.replace(placeholder, word)
        write_file(path, text)
    return NewTarget(*paths)


def exercise(target: Target) -> str:
    """Run one request on a tiny core: submit, lookup, allocate, free. Returns the target's version, or an empty text.

    TargetUnavailableError if the target cannot be started or an operation does not succeed.
    """
    group = Group("full", 4)
    shape = Shape((group,), 32, 24, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=24)
    operations = (Submit("a", (1, 2, 3, 4, 5)), Lookup("a"), Allocate("a", 5, hit=True), Free("a"))
    try:
        started, _ = target.start(shape)
        outcomes: list[Outcome] = [started]
        if isinstance(started, Done):
            outcomes += [target.step(operation)[0] for operation in operations]
        version = str(getattr(target, "version", ""))
    except TargetLostError as lost:
        raise TargetUnavailableError(f"{target.name}: lost in a first try: {lost}") from None
    finally:
        target.close()
    for operation, outcome in zip(("start", *operations), outcomes, strict=False):
        if not isinstance(outcome, Done):
            said = "is refused" if isinstance(outcome, Refused) else f"ends in {outcome}"
            raise TargetUnavailableError(f"{target.name}: in a first try {operation} {said}")
    return version


def version_run_by(family: Family, place: PythonPlace) -> str:
    """Version of the release in this environment, checked with `exercise`. TargetUnavailableError if it fails."""
    return exercise(ChildTarget(family.name, family.name, place))
