"""Opens an engine to be simulated by the name that the user gave, in this process."""

from typing import cast

from ..simulation.protocol import Engine
from ..simulation.run import declared
from ..targets.base import TargetUnavailableError
from ..targets.garbage import without_collector
from .names import OwnCode, Program, ReleaseName, parsed
from .own_code import ENGINE, in_one_line, made_by
from .program_engine import ProgramEngine


def open_engine_here(spec: str) -> Engine:
    """The engine, not started yet. ValueError if the name has no known form or means no engine;
    TargetUnavailableError if it cannot be made, or lacks a method."""
    match named := parsed(spec):
        case OwnCode():
            made = cast(Engine, made_by(named, "simulation.protocol.Engine", *ENGINE))
            if not hasattr(made, "cancel") and "cancel" not in declared(made, "lacks"):
                what = "no cancel, and does not say lacks = {'cancel'}"
                raise TargetUnavailableError(f"{spec}: the {type(made).__name__} of the factory has {what}")
            return made
        case Program():
            return ProgramEngine(named)
        case ReleaseName(_, family, pair=pair) if (make := family.pairs.get(pair, family.open_engine)) is not None:
            try:
                with without_collector():
                    return cast(Engine, make())
            except Exception as error:  # importing an engine can fail in any way
                raise TargetUnavailableError(f"{spec} cannot be imported: {in_one_line(error)}") from error
    raise ValueError(f"{spec} is no engine to be simulated; write {FORMS}")


def is_engine(target: str, said: bool = False) -> bool:
    """True if what is named is to be simulated: where that is said (`--engine`), and of a release that has no core to
    test alone. ValueError for a name of no known form."""
    named = parsed(target)
    return said or (isinstance(named, ReleaseName) and (bool(named.pair) or named.family.open_target is None))


def engine_spec(target: str) -> str:
    """What a process in the target's own environment opens. ValueError for a name of no known form."""
    named = parsed(target)
    if not isinstance(named, ReleaseName):
        return target
    return f"{named.family.name}/{named.pair}" if named.pair else named.family.name


FORMS = "path/file.py:make_engine, package.module:make_engine, program:COMMAND, or a release or RELEASE/PAIR"
"""The names of engines, for messages."""
