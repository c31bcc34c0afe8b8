"""Python without asserts (`-O`, PYTHONOPTIMIZE): our core refuses what it refuses, and says the same."""

import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary

assert False, "asserts are left out"
plan = Plan(3, operations=4000, chaos=sys.argv[1] == "chaos")
done = run_random(open_target("impl"), plan, Summary("impl", "random", 3))
outcomes = [sorted(counted.items()) for counted in (done.outcomes, done.misuse)]
print(done.finding or json.dumps([done.operations, *outcomes]))
"""


@pytest.mark.parametrize("how", ["usual", "chaos"])
def test_our_core_does_the_same_without_asserts(how):
    shown = {}
    for option in ("-O", "-OO"):
        command = [sys.executable, option, "-c", PROGRAM, how]
        shown[option] = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert shown[option].returncode == 0, shown[option].stderr
    asserting = PROGRAM.replace("assert False", "assert True")
    usual = subprocess.run([sys.executable, "-c", asserting, how], capture_output=True, text=True, timeout=120)
    assert usual.stdout.startswith("[4")
    assert {done.stdout for done in shown.values()} == {usual.stdout}
