"""What is left of a finding for those who have to fix it."""

import json

from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.traces.reproduction import pytest_file
from blockproof.fuzz.traces.trace_file import FoundBy, FoundWhat, TraceFile
from blockproof.model.ops import Group, Shape, Submit

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)


def test_a_trace_from_elsewhere_cannot_put_code_into_the_test_file():
    end = '"""\nimport os; os.abort()\n"""'
    file = TraceFile(Trace(SHAPE, (Submit(end, (0,)),)), end, FoundWhat(end, end, end), FoundBy(end, 1, end))
    spaces: dict[str, str] = {}
    exec(compile(pytest_file(file, "name"), "test_name.py", "exec"), spaces)
    assert spaces["TARGET"] == end
    assert json.loads(spaces["TRACE"])["operations"][0]["request"] == end
