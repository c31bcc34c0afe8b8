"""What a timing asks for, in the target's environment: `python -m blockproof.fuzz.releases.timing_child SPEC`.

The first line on stdin are traces, as JSON; for each line that follows, all of them are applied once, and the answer
is the seconds of processor time that this took, a line on what was stdout. Only the standard library and the target
need be installed.
"""

import json
import os
import sys
import time

from ...model.ops import Operation, Shape
from ..findings.ops_json import operation_from_json, shape_from_json
from ..opening.targets import open_here
from ..targets.base import Target, is_told


def main(spec: str) -> None:
    """Answer until stdin is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the target may print
    target = open_here(spec)
    traces = [
        (shape_from_json(shape), [operation_from_json(one) for one in operations])
        for shape, operations in json.loads(sys.stdin.readline())
    ]
    for _ in sys.stdin:
        answers.write(f"{sum(seconds_for(target, *trace) for trace in traces)}\n")
        answers.flush()


def seconds_for(target: Target, shape: Shape, operations: list[Operation]) -> float:
    """Processor time of the operations, without the building of the core."""
    target.start(shape)
    begin = time.process_time()
    for operation in operations:
        if is_told(target, operation):
            target.step(operation)
    return time.process_time() - begin


if __name__ == "__main__":
    main(sys.argv[1])
