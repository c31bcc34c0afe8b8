"""Which theorems have to be settled again, since a function that they run has changed."""

import json
import subprocess
from pathlib import Path

from .campaign import Interpreter
from .theorems import BY_ID


def stale(record: Path, where: Interpreter) -> set[str]:
    """Theorems that the record does not know for a core, or of which a function that ran is not as it was.

    ValueError if the record cannot be read, CalledProcessError if the core's functions cannot be looked at.
    """
    settled = {name: of.get(where.subject) for name, of in json.loads(record.read_text("utf-8"))["theorems"].items()}
    before = {name: of.get("functions", {}) for name, of in settled.items() if of is not None}
    names = sorted({function for functions in before.values() for function in functions})
    done = subprocess.run(
        [where.python, "-P", "-m", f"{__package__}.hashes", *where.arguments],
        input="\n".join(names),
        env=None if where.environment is None else dict(where.environment),
        capture_output=True,
        text=True,
        check=True,
    )
    now = json.loads(done.stdout)
    known = {name for name, functions in before.items() if all(now[one] == old for one, old in functions.items())}
    return set(BY_ID) - known
