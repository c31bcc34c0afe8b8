"""Commands that are no targets: what they print is kept whatever ends them, and they leave nothing behind."""

import os
import sys

import pytest
from blockproof.fuzz.opening.commands import Printing, Ran, run

from ..waiting import wait_until

CHILD = """import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print(child.pid, flush=True)
time.sleep(3600)
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{process}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def test_a_command_says_how_it_ended_and_all_that_it_printed(tmp_path):
    code = "import sys, os; print(os.getcwd(), input()); print('no', file=sys.stderr); sys.exit(3)"
    ran = run(python(code), folder=tmp_path, given="yes\n")
    assert ran == Ran(3, f"{tmp_path} yes\n", "no\n")
    assert ran.lines == [f"{tmp_path} yes", "no"]
    assert run(python(code), folder=tmp_path, given="yes\n", together=True).output.splitlines()[1:] == ["no"]


def test_what_a_command_is_given_is_sent_once_however_long_it_takes():
    code = "import time; said = input(); time.sleep(0.5); print(said)"
    assert run(python(code), given="yes\n", meanwhile=lambda: None) == Ran(0, "yes\n", "")


def test_the_error_is_what_pip_calls_one_else_the_last_line():
    assert Ran(1, "a\nERROR: b\n", "c\n").error == "b"
    assert Ran(1, "a\n", "c\n").error == "c"
    assert Ran(1, "").error == "it said nothing"


def test_documents_stand_among_other_lines():
    assert Ran(0, 'chatter\n{"a": 1}\n{ no JSON\n{"b": 2}\n').documents() == [{"a": 1}, {"b": 2}]


def test_a_command_that_takes_too_long_ends_with_all_it_has_started():
    ran = run(python(CHILD), seconds=3.0)
    assert ran.status is None
    wait_until(lambda: not is_alive(int(ran.output)))


def test_whatever_is_raised_meanwhile_ends_the_command(tmp_path):
    told = tmp_path / "pid"
    code = f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(str(os.getpid())); time.sleep(3600)"

    def meanwhile():
        if told.exists() and told.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python(code), meanwhile=meanwhile)
    assert not is_alive(int(told.read_text()))


def test_documents_are_read_while_a_command_prints_and_leaving_ends_it():
    code = "import json, time; print('chatter'); print(json.dumps({'a': 1}), flush=True); time.sleep(3600)"
    with Printing(python(code), dict(os.environ)) as printing:
        assert next(iter(printing)) == {"a": 1}
    assert printing.status() != 0
    with Printing(python("import sys; print('{\"b\": 2}'); sys.exit(4)"), dict(os.environ)) as printing:
        assert list(printing) == [{"b": 2}]
        assert printing.status() == 4
