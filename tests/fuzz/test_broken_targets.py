"""Broken targets: each ends with one line that names the cause, and none of them looks green."""

import json

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.opening import targets

MODEL_FREE = ("--oracle", "shadow,contract,liveness")
SHADOW = ("--oracle", "shadow")
UNUSABLE = {
    "typo_in_hides": "hides names 'lables', which is unknown; did you mean 'tables' or 'labels'?",
    "typo_in_lacks": "lacks names 'Allocate.gait', which is unknown; did you mean 'Allocate.gate'?",
    "text_for_a_set": "lacks is the text 'Reset'; write a set of names: {'Reset'}",
    "text_once_started": "hides is the text 'events'; write a set of names: {'events'}",
    "sizes_of_no_block": "block_sizes holds 0; a size is a number of tokens",
    "nameless": "the target's name is 7, a int; give it a text",
    "never_made": "the factory failed: RuntimeError: no such library: libcache.so",
    "nothing_made": "the factory returned a NoneType without 'name'",
    "cannot_be_closed": "the factory returned a Half without 'close'",
    "never_written": "has no function 'never_written'",
    "builds_nothing": "no core was built",
    "prints_and_builds_nothing": "no core was built",
    "refuses_everything": "no allocation succeeded in",
    "never_hits": "lookups with caching on found anything",
}
"""Those that nothing can be tested on: exit code 3."""
HARMLESS = ("refuses_everything", "never_hits")
"""Those of them that violate contract or liveness: judged by the shadow memory alone, which has no objection."""
FOUND = {
    "raises_in_start": "ValueError: unsupported dtype",
    "raises_in_step": "KeyError: 'r0'",
    "exits_in_step": "the target ended the process (SystemExit: device lost)",
    "returns_nothing": "the target returned a NoneType alone; return a tuple of an outcome and a Snapshot",
    "returns_outcome_alone": "alone; return a tuple of an outcome and a Snapshot",
    "returns_true": "the outcome is a bool; return Done, Refused or Failed",
    "shows_nothing": "the state is a NoneType; return a Snapshot",
    "shows_a_dict": "the state is a dict; return a Snapshot",
    "shows_a_number_for_a_list": "Snapshot.free is 3, a int; expected a list of block ids",
    "shows_another_number_of_groups": "Snapshot.tables has 5 entries; expected one for each of the 1 groups",
    "shows_no_null_block": "; expected one for each of the ",
    "lists_for_tuples": "[0, ((),)]",
    "block_beyond_the_pool": "10000",
    "knows_no_request": "S8",
}
"""Those whose answers are a finding: exit code 1."""


@pytest.fixture
def ended(tmp_path, monkeypatch, capsys):
    """Runs the command on a broken target: its exit code, its lines on stdout and those on stderr."""
    monkeypatch.syspath_prepend(".")

    def run(name, *words):
        given = [*words] if "--attention" in words else [*words, "--attention", "full"]
        target = ["--target", f"tests.fuzz.broken_targets:{name}"]
        code = cli.main(["fuzz", *target, "--seed", "1", "--out", str(tmp_path), *given])
        said = capsys.readouterr()
        assert "Traceback" not in said.err + said.out
        assert "bug of blockproof" not in said.err
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def says_once(lines, cause):
    """True if some line names the cause, and no line goes on without end."""
    return any(cause in line for line in lines) and max(map(len, lines)) < 400


@pytest.mark.parametrize("name", list(UNUSABLE))
def test_what_cannot_be_tested_ends_with_exit_code_3_and_the_cause(name, ended):
    operations = "12000" if name == "never_hits" else "300"
    code, out, err = ended(name, "--operations", operations, *(SHADOW if name in HARMLESS else MODEL_FREE))
    assert code == 3
    assert says_once(err[-1:] + [line for line in out if line.startswith("TESTED NOTHING: ")], UNUSABLE[name])


@pytest.mark.parametrize("name", list(FOUND))
def test_an_answer_that_is_none_or_wrong_ends_with_exit_code_1_and_the_cause(name, ended):
    oracles = () if name == "lists_for_tuples" else MODEL_FREE
    here = ["--no-isolate"] if name == "lists_for_tuples" else []  # a line from another process has no tuples
    code, out, _ = ended(name, "--operations", "2000", "--shrink-seconds", "0", *oracles, *here)
    assert code == 1
    assert says_once(out, FOUND[name])


@pytest.mark.parametrize(("name", "cause"), [("dies_in_step", "exit status 9"), ("hangs_in_step", "no answer within")])
def test_what_ends_or_holds_up_its_process_is_told_if_it_is_isolated(name, cause, ended, monkeypatch):
    usual = targets.open_target
    monkeypatch.setattr(targets, "open_target", lambda spec, isolate: usual(spec, isolate=isolate, deadline_s=0.4))
    code, out, _ = ended(name, "--operations", "100", "--isolate", "--shrink-seconds", "0")
    assert code == 1
    assert says_once(out, cause)


def test_a_target_that_has_none_of_the_attention_types_is_wrong_usage(ended):
    code, _, err = ended("lacks_all_kinds", "--attention", "full,full+sliding")
    assert code == 2
    assert "broken lacks what full, full+sliding is made of; choose from sink, sliding," in err[-1]


def test_attention_types_that_a_target_lacks_are_left_out_and_named(ended):
    code, out, _ = ended("lacks_all_kinds", "--attention", "full,sink", "--operations", "100")
    assert code == 0
    assert out[0] == "left out, since broken lacks what they are made of: full"


def test_what_a_target_prints_does_not_get_into_the_document(ended):
    code, out, err = ended("prints_and_builds_nothing", "--operations", "50", "--json", "--no-isolate", *MODEL_FREE)
    assert code == 3
    assert json.loads("\n".join(out))["tested_nothing"].startswith("no core was built in 50 runs")
    assert "building ... { not json" in err


def test_a_run_that_is_allowed_to_test_nothing_says_so_and_passes(ended):
    code, out, _ = ended("builds_nothing", "--operations", "50", "--allow-vacuous", *MODEL_FREE)
    assert code == 0
    assert any(line.startswith("note: no core was built in 50 runs") for line in out)


def test_several_processes_say_the_same(ended):
    code, out, _ = ended("builds_nothing", "--operations", "50", "--jobs", "2", *MODEL_FREE)
    assert code == 3
    assert says_once(out, "TESTED NOTHING: no core was built in")
