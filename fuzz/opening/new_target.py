"""Writes the files that somebody with an engine begins with, a target that runs and its test; and a quick check that a
target works at all.
"""

import keyword
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from ...model.ops import Allocate, Done, Free, Group, Lookup, Outcome, Refused, Shape, Submit
from ..adapters import families, family_of
from ..findings.writing import write_file
from ..targets.base import Target, TargetLostError, TargetUnavailableError
from ..targets.family import Family
from .child import ChildTarget, PythonPlace, environment_of
from .commands import run

_TEMPLATES = {"{module}.py": "new_target.py.txt", "test_{module}.py": "new_target_test.py.txt"}
_ENGINE_TEMPLATES = {"{module}.py": "new_engine.py.txt", "test_{module}.py": "new_engine_test.py.txt"}
_PAIR_TEMPLATES = {"{module}.py": "new_pair.py.txt", "test_{module}.py": "new_pair_test.py.txt"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")


@dataclass(frozen=True)
class NewTarget:
    """The files that were written."""

    target: Path
    test: Path
    like: str = ""
    """The release that the first one is put over; empty for a target."""
    engine: bool = False
    """It is an engine to be simulated."""
    pair: bool = False
    """It is two of them, and a router."""

    @property
    def spec(self) -> str:
        """The target's name for `--target`."""
        return self.like or f"{self.target}:{'make_engine' if self.engine else 'make_target'}"

    @property
    def _what(self) -> str:
        if self.pair:
            return "two naive engines"
        return "a naive scheduler" if self.engine else "a naive core"

    def commands(self) -> list[str]:
        """What to run next."""
        if self.engine:
            return engine_commands(self.target)
        return patch_commands(self.target, self.like) if self.like else commands(self.target)

    def lines(self) -> list[str]:
        """What to tell the user."""
        first, second = self.commands()
        so_far = f"they change nothing of {self.like} yet" if self.like else f"they run as they are, on {self._what}"
        return [f"wrote {self.target} and {self.test}; {so_far}:", f"  {first}", f"  {second}"]


def commands(target: Path) -> list[str]:
    """The check of a target in this file, and its first run."""
    spec = shlex.quote(f"{target}:make_target")
    return [f"blockproof targets check {spec}", f"blockproof fuzz --target {spec} --seconds 10"]


def engine_commands(engine: Path) -> list[str]:
    """The check of an engine in this file, and its first run."""
    spec = shlex.quote(f"{engine}:make_engine")
    return [f"blockproof targets check --engine {spec}", f"blockproof simulate --target {spec} --seconds 10"]


def patch_commands(patch: Path, release: str) -> list[str]:
    """The first run of a release with this file over it, and what the file changes."""
    over = f"--target {release} --patch {shlex.quote(str(patch))}"
    return [f"blockproof fuzz {over} --seconds 20", f"blockproof verify {over} --seconds 60"]


def write_target(name: str, folder: Path, like: str = "", engine: bool = False, *, pair: bool = False) -> NewTarget:
    """Write a target for the engine of this name into a folder, which is made; or a patch of the release that it is
    like, `NAME` or `NAME==VERSION`; or, with `engine`, an engine to be simulated; or, with `pair`, two engines with a
    router. Nothing is overwritten.

    ValueError for a name that cannot name a module, for a release without a template, and if a file is there already.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ValueError(f"{name!r} names no module: write letters, digits, - and _, as in my-engine")
    if like and (engine or pair):
        raise ValueError(f"--{'engine' if engine else 'pair'} and --like do not go together: a release is as it is")
    if engine and pair:
        raise ValueError("--engine and --pair do not go together: a pair is an engine of two")
    chosen = _PAIR_TEMPLATES if pair else _ENGINE_TEMPLATES if engine else _TEMPLATES
    release, texts = _texts(like, chosen)
    what = "patch" if like else "pair" if pair else "engine" if engine else "target"
    module = f"{name.replace('-', '_').lower()}_{what}"
    paths = [folder / pattern.format(module=module) for pattern in texts]
    if there := [path for path in paths if path.exists()]:
        raise ValueError(f"{there[0]} is there already, and is left as it is; choose another name, or --folder")
    made = NewTarget(paths[0], paths[1], release, engine or pair, pair)
    words = {
        **dict(
            zip(
                ("COMMAND_FUZZ", "COMMAND_VERIFY") if like else ("COMMAND_CHECK", "COMMAND_FUZZ"),
                made.commands(),
                strict=True,
            )
        ),
        "CLASS": "".join(part.capitalize() for part in re.split("[-_]", name)),
        "MODULE": module,
        "RELEASE": release,
        "NAME": name,
    }
    for path, text in zip(paths, texts.values(), strict=True):
        for placeholder, word in words.items():
            text = text.replace(placeholder, word)
        write_file(path, text)
    return made


def _texts(like: str, chosen: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The full name of the release, and the templates by the names of their files; those chosen, without a release."""
    if not like:
        templates = {name: files(__package__).joinpath(text) for name, text in chosen.items()}
        return "", {name: text.read_text(encoding="utf-8") for name, text in templates.items()}
    family = family_of(like)
    if family is None or not family.new_patch:
        able = ", ".join(name for name, one in families().items() if one.new_patch)
        raise ValueError(f"no patch can be begun for {like!r}; write one of {able}, or NAME==VERSION of these")
    return family.spec(family.version_in(like)) if like != family.name else family.example, family.new_patch


_TRY = f"""import sys
from {__name__.split(".")[0]}.fuzz.adapters import families
print(families()[sys.argv[1]].open_engine().version)"""
"""Prints the version of a release's engine."""


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
    """Version of the release in this environment, checked with `exercise`; of one that is only simulated, when its
    engine can be made. TargetUnavailableError if that fails."""
    if family.open_target is not None:
        return exercise(ChildTarget(family.name, family.name, place))
    with TemporaryDirectory(prefix="blockproof-try-") as folder:
        command = [str(place.python), "-P", "-c", _TRY, family.name]
        ran = run(command, environment={**environment_of(place, Path(folder)), **family.environment})
    if ran.status:
        raise TargetUnavailableError(f"{family.name}: its engine cannot be made: {ran.error}")
    return ran.lines[-1]
