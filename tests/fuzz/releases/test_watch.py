"""Watching a release: what is read off each part, the page, the exit codes, parts that fail, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.commands import Ran
from blockproof.fuzz.releases.watch import page, parts_of, run_part, watch
from blockproof.fuzz.releases.watch_parts import PartNews, Sides, WatchPart

OLD, NEW_ONE = "vllm==0.32.0", "vllm==0.33.0"
FOUND = {"observable": "S7", "operation": "Lookup", "attention": "full", "text": "contract: S7", "command": "again"}


def row(target, *roots):
    findings = [{**FOUND, "root_cause": root, "trace": f"{root}.json"} for root in roots]
    row = {"target": target, "problem": "", "tested_nothing": "", "operations": 7, "findings": findings}
    return {"targets": [row]}


CLEAN = {
    "install": "vllm is ready; try: this",
    "check": {"asked": 5, "wrong": 0},
    OLD: row(OLD, "a-flaw"),
    NEW_ONE: row(NEW_ONE, "a-flaw"),
    "findings": {"observed": {"one": {OLD: "shows", NEW_ONE: "nothing"}, "two": {OLD: "shows", NEW_ONE: "shows"}}},
    "scripts": {"observed": {"three": {OLD: "nothing", NEW_ONE: "nothing"}}},
    "diff": {"comparisons": []},
    "deviations": [{"id": "x", "verdict": "same as the rule", "text": "same as the rule"}],
    "theorems": {"text": "all hold", "changed": [], "theorems": {}},
    "functions": {"changed": [], "new": [], "gone": []},
    "replay": {"finding": None},
    "engine": {"checks": [], "lost": ""},
    "verify": {"operations": 9, "verdict": "the same behaviour", "findings": [], "work": {}},
}


def runner(said):
    """Answers each part from `CLEAN` or with what is said; an exception is raised, a status fails."""

    def run(part, seconds):
        word = part.name if part.module != "fuzz.cli" else part.words[0]
        word = {"targets": part.words[1]}.get(word, "scripts" if "--scripts" in part.words else word)
        word = part.words[2] if word == "campaign" else word
        word = "engine" if word == "check" and "--engine" in part.words else word
        answer = said[word] if word in said else CLEAN[word]
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Ran):
            return answer
        return Ran(0, answer if isinstance(answer, str) else json.dumps(answer), "")

    return run


def watched(said, minutes=5.0):
    sides = Sides.of(NEW_ONE, OLD, Path("out"), minutes)
    return watch(sides, parts_of(sides), lambda line: None, lambda so_far: None, runner(said))


def test_nothing_new_is_0_and_what_is_fixed_and_still_there_is_told():
    done = watched({})
    assert done.code == 0
    assert done.lines("fixed") == ["one"]
    assert set(done.lines("still")) == {"two", "a-flaw (campaign)"}
    assert done.open == []
    written = page(done, "a command")
    assert f"# {NEW_ONE}, held against {OLD}" in written
    assert "| theorems | all hold |" in written
    assert max(map(len, written.split("## Commands")[0].splitlines())) <= 110


NEWS: dict[str, dict[str, Any]] = {
    "a wrong answer": {"check": {"asked": 5, "wrong": 1}},
    "a finding without a cause": {NEW_ONE: row(NEW_ONE, "new")},
    "a cause that the old one has not": {OLD: row(OLD), NEW_ONE: row(NEW_ONE, "a-flaw")},
    "a trace": {"findings": {"observed": {"one": {OLD: "nothing", NEW_ONE: "shows"}}}},
    "a script": {"scripts": {"observed": {"one": {OLD: "nothing", NEW_ONE: "shows"}}}},
    "a theorem": {
        "theorems": {"text": "", "changed": [], "theorems": {"T1": {"old": "proved", "new": "refuted"}}},
    },
}


@pytest.mark.parametrize("said", NEWS.values(), ids=NEWS)
def test_something_new_is_1_whichever_part_finds_it(said):
    done = watched(said)
    assert done.code == 1
    assert len(done.lines("new")) == 1


def test_what_the_old_release_shows_in_the_same_trace_is_not_new():
    done = watched({NEW_ONE: row(NEW_ONE, "new"), "replay": {"finding": FOUND}})
    assert done.code == 0
    assert any(line.startswith(f"on {OLD}, too: S7 at Lookup") for line in done.lines("still"))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Ran(3, "", "blockproof: no such thing\n"), "exit status 3: blockproof: no such thing"),
        (Ran(0, "no JSON", ""), "exit status 0: nothing was said"),
        (Ran(1, "[]", "half\n"), "exit status 1: half"),
        (Ran(None, "", ""), "not done within its 2.5 minutes"),
    ],
)
def test_a_part_that_fails_is_told_on_the_page_and_ends_nothing_else(answer, why):
    done = watched({NEW_ONE: answer})
    assert done.code == 3
    assert f"campaign on {NEW_ONE}: {why}" in done.open
    assert f"could not be judged: {why}" in page(done, "a command")
    assert [one.part.name for one in done.done if one.told is None] == [f"campaign on {NEW_ONE}"]


def test_a_part_that_fails_does_not_hide_what_is_new():
    assert watched({NEW_ONE: Ran(3, "", "no"), **NEWS["a trace"]}).code == 1


def test_what_comes_up_is_asked_of_the_old_release_if_its_campaign_has_failed():
    done = watched({OLD: Ran(None, "", ""), "replay": {"finding": FOUND}})
    assert done.code == 3
    assert any(line.startswith(f"on {OLD}, too: S7 at Lookup (full), a-flaw") for line in done.lines("still"))


def test_when_the_time_is_over_the_rest_is_not_tried():
    done = watched({}, minutes=0.0)
    assert done.code == 3
    assert all(one.problem == "not tried: the 0 minutes are over" for one in done.done)


def test_ctrl_c_ends_it_with_what_there_is():
    done = watched({"diff": KeyboardInterrupt()})
    assert done.code == 130
    assert done.done[-1].part.name == "difference"
    assert "ended by Ctrl-C" in page(done, "a command")
    assert "* theorems: not begun" in page(done, "a command")
    assert done.lines("fixed") == ["one"]


def test_a_command_that_takes_too_long_is_ended():
    ended = run_part(
        WatchPart("x", ("fuzz", "--target", "impl", "--seconds", "600"), lambda said, sides: PartNews()), 1.0
    )
    assert ended.status is None


def test_our_own_core_against_a_broken_one_through_the_real_commands(tmp_path, capsys, monkeypatch):
    def inline(part, seconds):
        """The command in this process, with so many operations instead of seconds, of one attention type."""
        words = list(part.words)
        if "--seconds" in words:
            place = words.index("--seconds")
            words[place : place + 2] = ["--operations", "300", "--attention", "full"]
        status = main(words)
        return Ran(status, *capsys.readouterr())

    monkeypatch.chdir(tmp_path)
    sides = Sides.of("fault:held-block-handed-out", "impl", tmp_path / "out", 60.0)
    done = watch(sides, parts_of(sides), lambda line: None, lambda so_far: None, inline)
    assert done.open == []
    assert done.code == 1
    assert done.lines("changed")
    (told, *_) = [line for line in done.lines("new") if "explained by no known flaw" in line]
    assert "blockproof replay" in told


def test_the_command_writes_the_page_and_ends_with_the_exit_code(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["watch", "impl", "--against", "impl", "--write", "page.md", "--seconds", "3"]) == 3
    assert "| answers |" in Path("page.md").read_text()
    assert "page.md" in capsys.readouterr().out


def test_wrong_words_are_told_in_one_line(capsys):
    for words, text in (
        (["watch", "impl"], "add --against"),
        (["watch", "nonsense", "--against", "impl"], "unknown target"),
        (["watch", "vllm==0.0.1"], "no release before vllm==0.0.1 is known"),
    ):
        assert main(words) == 2
        assert text in capsys.readouterr().err


def test_ctrl_c_writes_the_page_and_leaves_no_process(tmp_path):
    command = [sys.executable, "-m", "blockproof.fuzz.cli", "watch", "impl", "--against", "impl", "--seconds", "30m"]
    process = subprocess.Popen([*command, "--write", "page.md"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "blockproof campaign" in line:
            break
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    process.stderr.read()
    assert process.wait(timeout=60) == 130
    assert "ended by Ctrl-C" in (tmp_path / "page.md").read_text()


SIMULATED: dict[str, dict[str, Any]] = {
    "check": {"checks": [{"asks": "one request", "judge": "", "what": ""}], "lost": ""},
    "verify": {
        "operations": 9_000,
        "verdict": "2 differences",
        "findings": [
            {"where": "introduced", "oracle": "memory", "text": "r1: reads another content", "trace": "story.json"},
            {"where": "fixed", "oracle": "fate", "text": "update raises", "trace": "fixed.json"},
            {"where": "the old side does it, too", "oracle": "progress", "text": "never ends", "trace": ""},
        ],
        "work": {"tokens computed again": {"old": 900, "new": 1_200}},
    },
}


def watched_engine(new, old, **changed):
    sides = Sides.of(new, old, Path("out"), 5.0, ":" in new)
    said = runner({**SIMULATED, **changed})
    return watch(sides, parts_of(sides), lambda line: None, lambda so_far: None, said)


def test_an_engine_is_simulated_and_nothing_else():
    done = watched_engine("new.py:make_engine", "old.py:make_engine")
    assert [one.part.name for one in done.done] == ["answers of the engine", "simulation"]
    assert all("--engine" in one.part.words for one in done.done)
    assert done.code == 1
    (new,) = done.lines("new")
    assert new.startswith(
        "introduced: memory: r1: reads another content: `blockproof replay story.json --target new.py"
    )
    assert done.lines("fixed")[0].startswith("fixed: fate: update raises")
    assert done.lines("still") == ["the old side does it, too: progress: never ends"]
    assert done.lines("changed") == ["tokens computed again for the same stories: 900, now 1,200"]
    right = {**SIMULATED["verify"], "findings": [], "work": {}}
    assert watched_engine("new.py:make_engine", "old.py:make_engine", verify=right).code == 0


def test_a_release_that_is_only_simulated_needs_no_word_for_it():
    names = [one.name for one in parts_of(Sides.of("transformers==5.24.0", "transformers==5.23.0", Path("out"), 5.0))]
    assert {"answers of the engine", "simulation", "scripts"} <= set(names)
    assert not {"answers", "difference", "findings"} & set(names)
    assert not [name for name in names if name.startswith("campaign")]
