"""One process that settles theorems or gives second opinions: `python -m blockproof.proofs.worker [FOLDER]`.

Requests come as JSON lines on stdin, answers go as JSON lines to what was stdout; whatever else is printed goes to
stderr. The interpreter may be that of a target's environment; FOLDER then says where z3 lies, behind all its own
packages.
"""

import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until stdin is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path += sys.argv[1:]
    import z3.z3  # not before: it may lie in FOLDER

    z3.z3.Z3_DEBUG = False  # checks of argument types in the bindings: a fifth of the time, and the tests run with them
    for line in sys.stdin:
        try:
            said: object = answer(json.loads(line))
        except Exception as error:  # a target's code may raise anything, when it is imported or when it runs
            traceback.print_exc()
            said = {"error": described(error)}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


def described(error: Exception) -> str:
    """Type and message of an error, and where it was raised: the innermost place outside of this package, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if Path(frame.filename).parent != Path(__file__).parent]
    places = [f", in {frame.name}, {frame.filename} line {frame.lineno}" for frame in (outside or frames)[-1:]]
    return f"{type(error).__name__}: {error}{''.join(places)}"


def answer(request: dict[str, Any]) -> object:
    """A verdict on `{"settle": id, "subject": name, "seconds": s, "controls": true}`; what cvc5 answers to
    `{"opinion": smtlib, "seconds": s}`."""
    if "opinion" in request:
        from .cross_check import second_opinion

        return second_opinion(request["opinion"], request["seconds"])
    from .roles import subject
    from .theorems import BY_ID

    statement, core = BY_ID[request["settle"]], subject(request["subject"])
    return asdict(statement.settle(core, request["seconds"], request["controls"]))


if __name__ == "__main__":
    main()
