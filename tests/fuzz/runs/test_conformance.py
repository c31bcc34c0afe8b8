"""`targets check`: a right target has no wrong line, and each typical mistake exactly its own."""

import ast
import inspect
import json
import re
import subprocess
import sys

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.new_target import write_target
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.contract import Contract
from blockproof.fuzz.runs.conformance import check, check_target, expected, lines, scripts
from blockproof.model.ops import OPERATIONS

LATER_LABELS = "labels=[None, *(self.labels(cached[block]) + 1 if block in cached else None for block in blocks)]"
LABELS = LATER_LABELS.replace(" + 1", "")
SHOWN_HIT = "return Done((len(request.hit) * self.core.block_size, (shown(request.hit),)))"
FULL = "        if missing + len(reused) > len(self.free):\n"
PREFIXES = "range(self.block_size, len(tokens), self.block_size)"
STEP_START = "            case ops.StepStart():\n                return Done()\n"
FREE, NUM_FREE, COUNTS = "free=list(shown(core.free)),", "num_free=len(core.free)", "ref_cnt=[0, *core.holders]"
NEW = "return Done((shown(new),))"
KNOWN = "                if request is not None:\n                    self"
NO_SHIFT = ("return tuple(block + 1 for block in blocks)", "return tuple(blocks)")
MISTAKES = {
    "null-block": [NO_SHIFT, (COUNTS, "ref_cnt=[*core.holders, 0]")],
    "pool-size": [("NaiveCore(shape.num_blocks - 1,", "NaiveCore(shape.num_blocks - 2,")],
    "lists": [(NEW, "return Done(([*shown(new)],))")],
    "not-per-group": [(NEW, "return Done(shown(new))")],
    "not-only-new": [(NEW, "return Done((shown(request.table),))")],
    "hit-of-all": [(PREFIXES, PREFIXES.replace("len(tokens)", "len(tokens) + 1"))],
    "hit-in-blocks": [("Done((len(request.hit) * self.core.block_size,", "Done((len(request.hit),")],
    "no-hit": [("            self.cached[table[index]] =", "            _ =")],
    "hit-too-long": [("self.shape.caching and not request.skips_lookup", "self.shape.caching")],
    "lookup-refused": [(SHOWN_HIT, f"{SHOWN_HIT} if request.hit else Refused()")],
    "lookup-value": [("(shown(request.hit),)))", "shown(request.hit)))")],
    "changed-when-refused": [(FULL, f"{FULL}            self.free, self.cached = self.free[::-1], {{}}\n")],
    "raised-for-no-room": [("            return None\n", "            raise IndexError('pop from an empty list')\n")],
    "free-unknown": [(KNOWN, KNOWN.replace("request is not None", "True"))],
    "free-without-cached": [
        (FREE, "free=list(shown(b for b in core.free if b not in cached)),"),
        (NUM_FREE, "num_free=len([b for b in core.free if b not in cached])"),
    ],
    "num-free": [(NUM_FREE, f"{NUM_FREE} - 1")],
    "free-list": [(FREE, "free=list(shown(range(len(core.holders)))),"), (NUM_FREE, "num_free=len(core.holders)")],
    "per-group": [("registered=[{}]", "registered=[]")],
    "types": [("free=list(shown(core.free))", "free=shown(core.free)")],
    "ref-cnt-length": [(COUNTS, "ref_cnt=[*core.holders]")],
    "references": [(COUNTS, "ref_cnt=[0, *(min(1, one) for one in core.holders)]")],
    "labels-length": [(LABELS, "labels=[]")],
    "labels-order": [(LABELS, LATER_LABELS)],
    "hash-blocks": [("// self.shape.hash_block_size if self.shape.caching else 0", "if self.shape.caching else 0")],
    "new-blocks": [("operation.new_tokens + operation.lookahead\n", "operation.new_tokens\n")],
    "table-left": [("        table.clear()\n", "")],
    "value-of-Reset": [("                return Done(True)\n", "                return Done()\n")],
    "raised": [(STEP_START, "")],
    "protocol": [
        ("        except Exception as error:", "        except ValueError as error:"),
        ("                request.computed -= operation.count\n", "                1 / 0\n"),
    ],
    "pieces": [("+= request.scheduled - operation.rejected", "+= request.scheduled if operation.sampled else 0")],
    "builds-nothing": [('!= ["full"]', '!= ["fully"]')],
}
"""What is changed in the target that `targets new` writes, by the name of the mistake that must be told."""


@pytest.fixture
def variant(tmp_path):
    """A target, changed at these places: path and name of its factory."""

    def make(changes=()):
        file = write_target("my-engine", tmp_path).target
        text = file.read_text()
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        file.write_text(text)
        return f"{file}:make_target"

    return make


def checked(spec):
    target = open_target(spec)
    try:
        return check_target(target)
    finally:
        target.close()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_by_its_own_line_and_no_other(variant, mistake):
    report = checked(variant(MISTAKES[mistake]))
    assert report.mistakes == [mistake], "\n".join(report.lines(all_of_them=False))
    (line,) = report.of("wrong")
    assert line.expected
    assert line.advice
    assert "\n" not in line.expected + line.advice
    assert report.code == (3 if mistake == "builds-nothing" else 1)


IN_THE_ENGINE = {
    "free-list": [("            if not self.holders[block]:\n", "            if self.holders[block] < 2:\n")],
    "ids": [(NEW, "return Done((shown([block + 99 for block in new]),))")],
    "free-without-cached": [("                self.free.append(block)\n", "                pass\n")],
    "raised-for-no-room": MISTAKES["raised-for-no-room"],
    "no-hit": MISTAKES["no-hit"],
}
"""Mistakes that are planted into the engine below the target, whose lines would not be other ones if the target made
them."""


@pytest.mark.parametrize("mistake", IN_THE_ENGINE)
def test_where_the_engine_may_be_wrong_both_are_named(variant, mistake):
    report = checked(variant(IN_THE_ENGINE[mistake]))
    assert mistake in report.mistakes
    for line in report.of("wrong"):
        _, _, target, engine = line.lines()
        assert target == f"            either the target: {line.advice}"
        assert engine == f"            or the engine: {line.engine}"
        assert "do:" not in "".join(line.lines())
    document = report.as_json()
    assert [line["engine"] for each in document["scenarios"] for line in each["lines"] if line["verdict"] == "wrong"]


def test_only_the_form_of_an_answer_is_the_targets_alone():
    calls = [one for one in ast.walk(ast.parse(inspect.getsource(expected))) if isinstance(one, ast.Call)]
    first = [call.args[0] for call in calls if getattr(call.func, "id", "") == "Wrong"]
    texts = [str(part.value) for one in first for part in ast.walk(one) if isinstance(part, ast.Constant)]
    named = {text for text in texts if re.fullmatch("[a-z]+(-[a-z]+)*", text)} - {"refused", "answered"}
    assert len(first) > 30
    assert {"free-list", "ids", "types", "no-hit", "lists"} <= named
    for mistake in named | set(MISTAKES):
        assert (mistake in lines.FORM) is not (mistake in lines.ENGINE or mistake.startswith("value-of-")), mistake
        assert bool(lines.engine_does(mistake)) is (mistake not in lines.FORM)
    assert "S13" in lines.engine_does("S13")


def test_a_scenario_that_blockproof_fails_in_is_told_and_the_others_are_asked(monkeypatch, variant, capsys):
    def fails(driver, size):
        driver.start("Broken", scripts.shape_of(size))
        raise IndexError("list index out of range")

    monkeypatch.setattr(check, "SCRIPTS", {"fails": fails, **scripts.SCRIPTS})
    assert main(["targets", "check", variant()]) == 70
    out = capsys.readouterr().out
    assert "BUG       a bug of blockproof -> IndexError: list index out of range" in out
    assert "1 bug of blockproof, so not all was asked" in out
    assert "ok        Free nobody" in out


def test_an_oracle_that_fails_is_no_mistake_of_the_target(monkeypatch, variant, capsys):
    def fails(self, *given):
        raise IndexError("list index out of range")

    monkeypatch.setattr(Contract, "step", fails)
    assert main(["targets", "check", variant()]) == 70
    out = capsys.readouterr().out
    assert "WRONG" not in out
    assert "do: report this: it says nothing of the target" in out


def test_a_lookup_that_gives_up_in_a_full_pool_is_told(variant):
    usable = "usable = self.shape.caching and not request.skips_lookup"
    report = checked(variant([(usable, f"{usable} and self.core.free")]))
    assert report.mistakes == ["no-hit"]
    (line,) = report.of("wrong")
    assert "in a full pool as well" in line.advice


def test_an_engine_that_keeps_a_block_in_reserve_is_not_wrong(variant):
    reserve = FULL.replace("if missing", "if missing and missing").replace("len(self.free):", "len(self.free) - 1:")
    report = checked(variant([(FULL, reserve)]))
    assert (report.mistakes, report.code) == ([], 0)
    assert {line.expected.partition(":")[0] for line in report.of("hint")} == {
        "Done, unless your engine keeps blocks in reserve"
    }


def test_at_least_twelve_mistakes_are_known():
    assert len(MISTAKES) >= 25


def test_a_right_target_has_nothing_to_be_told(variant):
    report = checked(variant())
    assert (report.mistakes, report.of("hint"), report.code) == ([], [], 0)
    assert report.asked > 50


def test_our_core_is_asked_every_operation(monkeypatch):
    target = open_target("impl")
    asked, step = set(), target.step

    def noted(operation):
        asked.add(type(operation).__name__)
        return step(operation)

    monkeypatch.setattr(target, "step", noted)
    report = check_target(target)
    assert (report.mistakes, report.of("hint"), report.of("left out")) == ([], [], [])
    assert asked == set(OPERATIONS) - {
        "Landed",  # no call on a core that is not told
        "AllocateBatch",  # which the contract has asked one by one
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([('"Arrive", "CommonPrefix"', '"Arrive", "Reset", "CommonPrefix"')], "take 'Reset' out of `lacks`"),
        ([('"usage", ', '"usage", "ref_cnt", ')], "take 'ref_cnt' out of `hides`"),
        ([('"hybrids", ', "")], 'add {"hybrids"} to `lacks`'),
        ([('"Group.kind=mla", "Group.kind=tq", ', "")], 'add {"Group.kind=mla", "Group.kind=tq"} to `lacks`'),
    ],
)
def test_what_is_said_needlessly_or_not_said_is_a_hint(variant, changes, says):
    report = checked(variant(changes))
    assert (report.mistakes, report.code) == ([], 0)
    (hint,) = report.of("hint")
    assert says in hint.advice


def test_what_is_lacking_is_left_out_and_said(variant):
    report = checked(variant([('"Arrive", "CommonPrefix"', '"Arrive", "Preempt", "StepStart", "CommonPrefix"')]))
    assert report.mistakes == []
    assert any(line.asked.startswith("Preempt") and "lacks Preempt" in line.expected for line in report.of("left out"))


def test_a_core_without_a_cache_is_right_if_it_says_so(variant):
    changes = [(*MISTAKES["no-hit"],)[0], ('"Arrive", "CommonPrefix"', '"Arrive", "Lookup", "CommonPrefix"')]
    report = checked(variant(changes))
    assert report.mistakes == []


def test_the_command_says_what_is_wrong_and_what_to_do(variant, capsys):
    assert main(["targets", "check", variant(MISTAKES["null-block"])]) == 1
    out = capsys.readouterr().out
    assert "WRONG     start -> Done()" in out
    assert "either the target: block 0 is the null block, which is never free" in out
    assert "or the engine: it frees or hands out the block that it keeps for nothing (S4)" in out
    assert "1 answer wrong" in out
    assert "the engine is wrong: leave the target as it is" in out
    assert "then: blockproof targets check" in out


def test_the_command_in_json_is_one_document_even_if_the_target_prints(variant, capsys):
    spec = variant([("        self.shape, self.requests", '        print("noise")\n        self.shape, self.requests')])
    assert main(["targets", "check", spec, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["target"], document["wrong"], document["exit"]) == (spec, 0, 0)
    names = [scenario["name"].partition(" (")[0] for scenario in document["scenarios"]]
    assert names[:2] == ["One request", "A prompt in pieces"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere.py:make_target"], 3, "there is no file nowhere.py"),
        (["my_target.py"], 2, "as in my_target.py:make_target"),
    ],
)
def test_a_target_that_cannot_be_opened_is_one_line(arguments, code, says, capsys):
    assert main(["targets", "check", *arguments]) == code
    told = capsys.readouterr()
    assert says in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise RuntimeError('no device')", "start -> protocol: the target raised RuntimeError: no device"),
        ("return None", "start -> protocol: "),
        ("return Done(), None", "start -> Done()"),
        ("raise SystemExit(3)", "start -> crash: the target ended the process (SystemExit: 3)"),
    ],
)
def test_a_start_that_fails_is_told(variant, capsys, body, says):
    begin = "        if [group.kind for group in shape.groups]"
    assert main(["targets", "check", variant([(begin, f"        {body}\n{begin}")])]) == 1
    assert f"WRONG     {says}" in capsys.readouterr().out


def test_a_crash_is_told_with_isolate(variant, capsys):
    spec = variant([(STEP_START, "            case ops.StepStart():\n                __import__('os')._exit(7)\n")])
    assert main(["targets", "check", spec, "--isolate"]) == 1
    out = capsys.readouterr().out
    assert "WRONG     StepStart -> crash: exit status 7" in out


# What `targets new` writes.


def test_what_is_written_passes_its_own_test(tmp_path):
    written = write_target("My-Engine2", tmp_path / "tests")
    assert written.target.name == "my_engine2_target.py"
    text = written.target.read_text()
    assert "class MyEngine2Target" in text
    assert not {"COMMAND", "CLASS", "NAME"} & set(text.replace('"', " ").replace("_", " ").split())
    assert all(command in text for command in written.commands())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(written.test)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_mistake_in_what_is_written_is_found_by_fuzzing(variant, tmp_path, capsys):
    spec = variant([("missing + len(reused) > len(self.free)", "missing > len(self.free)")])
    words = ["fuzz", "--target", spec, "--seed", "1", "--operations", "5000", "--out", str(tmp_path / "found")]
    assert main(words) == 1
    assert "trace:" in capsys.readouterr().out


def test_the_command_says_what_to_run_next_and_overwrites_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["targets", "new", "my-engine", "--folder", "my tests"]) == 0
    out = capsys.readouterr().out
    assert "blockproof targets check 'my tests/my_engine_target.py:make_target'" in out
    assert main(["targets", "new", "my-engine", "--folder", "my tests"]) == 2
    assert "is there already, and is left as it is" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "2fast", "a b", "a/b", "../a", "class", "a--b", "-a"])
def test_a_name_that_names_no_module_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="names no module"):
        write_target(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
