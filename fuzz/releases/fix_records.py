"""What came of trying proposed fixes on releases (`fixes`): kept beside the findings, and told in a line."""

from pathlib import Path

import msgspec

from ..findings.oracle_names import LOCKSTEP
from ..findings.reading import UnreadableError, read_bytes
from ..findings.words import plural
from ..findings.writing import alone, write_file
from ..traces.files import TraceError
from .scheduler_cases import NOTHING, SHOWS

BY_FIXES = "fixes.json"
"""The file with what came of trying each fix, by finding and release."""
Kinds = dict[str, int]
"""Kinds of findings, as `contract: S7 at Lookup`, and how many runs ended with each."""


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What some oracles found on a release without the fix and with it."""

    oracles: tuple[str, ...]
    operations: int
    """At least so many without the fix, and with it."""
    seed: int
    without: Kinds
    fixed: Kinds
    new: tuple[str, ...]
    """Kinds that the fix brings: found with it, and their traces show nothing of the kind without it."""


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of trying a fix on a release."""

    script: str
    """What the finding's script shows without the fix (`finding_scripts.ScriptSaid.seen`)."""
    script_fixed: str
    """What it shows with it."""
    judged: tuple[Judged, ...]

    def problem(self) -> str:
        """Why the fix does not hold; empty if it does."""
        if self.script != SHOWS:
            return f"the script must show the defect without the fix; it says {self.script}"
        if self.script_fixed != NOTHING:
            return f"the script with the fix says {self.script_fixed}"
        new = [kind for one in self.judged for kind in one.new]
        return f"the oracles find more with the fix: {', '.join(new)}" if new else ""

    def told(self) -> str:
        """What was tried and how it came out, in a sentence or two."""
        if problem := self.problem():
            return f"does not hold: {problem}"
        judged = [
            f"In {plural(one.operations, 'operation')} under {', '.join(one.oracles)}: {_compared(one)}"
            for one in self.judged
        ]
        return f"holds. The script shows nothing with it. {'. '.join(judged)}"


Fixes = dict[str, dict[str, Held]]
"""By finding and release."""


def read_fixes(folder: Path) -> Fixes:
    """What was recorded before; empty if nothing was. TraceError says what is wrong with the file."""
    path = folder / BY_FIXES
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(read_bytes(path, BY_FIXES), type=Fixes)
    except (UnreadableError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(str(path), "", f"{error}; write it again with blockproof findings --fixes --record") from None


def record_fix(folder: Path, name: str, spec: str, held: Held) -> None:
    """Add this to what the folder's file has, in place of an older trial. TraceError as from `read_fixes`."""
    path = folder / BY_FIXES
    with alone(path):
        everything = read_fixes(folder)
        everything.setdefault(name, {})[spec] = held
        whole = msgspec.json.encode(everything, order="deterministic")
        write_file(path, msgspec.json.format(whole, indent=1).decode() + "\n")


def _compared(one: Judged) -> str:
    """The kinds of findings without the fix and with it, compared."""
    gone = [kind for kind in one.without if kind not in one.fixed]
    rest = f"; gone with it: {', '.join(gone)}" if gone else ""
    if not one.fixed:
        return f"nothing found{rest}"
    what = "differences from the model" if LOCKSTEP in one.oracles else "findings"
    return f"{plural(len(one.fixed), 'kind')} of {what}, none that is not there without it{rest}"
