"""Two engines under simulation: what a change to a scheduler is said to have done."""

import json
import shutil
from pathlib import Path

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.engines.played import Played, facts_from_json, facts_to_json, in_common
from blockproof.fuzz.engines.story_fuzzing import read_story
from blockproof.fuzz.findings.story_finding import StoryFinding
from blockproof.fuzz.releases.verify_effects import Where
from blockproof.fuzz.releases.verify_engines import difference_of
from blockproof.fuzz.simulation.traffic import EngineFacts

from ..scheduler_mistakes import MISTAKES
from .toy_git import git

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-scheduler-engine"
RIGHT = (EXAMPLE / "scheduler_engine.py").read_text(encoding="utf-8")
WRONG = MISTAKES["freed-by-the-first"]


def changed(old, new):
    """The right engine with another line; the line has to be there."""
    assert old in RIGHT
    return RIGHT.replace(old, new)


BROKEN = changed(WRONG.old, WRONG.new)
OTHER_ORDER = changed("next(iter(self.free))", "next(reversed(self.free))")
REFUSES = changed(
    "return 0 if self.blocks_for", "return 0 if sequence.prompt >= self.max_length - 1 or self.blocks_for"
)
PREEMPTS = '"""It gives its blocks back and waits."""\n'
EXITS = changed(PREEMPTS, f"{PREEMPTS}        import os; os.kill(os.getpid(), 9)\n")
MEMORY = StoryFinding("memory", "reads N", "r1: reads 3", 4)
TOKENS = StoryFinding("tokens", "gets N", "r1: gets 3", 5)


def put(folder, text):
    folder.mkdir(exist_ok=True)
    for name in ("simulated.py", "offloading.py"):
        shutil.copy(EXAMPLE / name, folder)
    (folder / "scheduler_engine.py").write_text(text, encoding="utf-8")
    return f"{folder}/simulated.py:make_engine"


def verified(tmp_path, capsys, old, new, *more, command="verify"):
    """Exit code and the document of the command."""
    words = ["--target", put(tmp_path / "old", old), "--target", put(tmp_path / "new", new), "--seed", "1"]
    words += ["--out", str(tmp_path / "out"), "--operations", "2500"]
    code = cli.main([command, "--engine", *words, "--json", *more])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "where"), [(RIGHT, BROKEN, Where.NEW), (BROKEN, RIGHT, Where.OLD)])
def test_a_mistake_is_introduced_or_fixed(tmp_path, capsys, old, new, where):
    code, told = verified(tmp_path, capsys, old, new)
    (row,) = told["findings"]
    assert (code, row["where"], row["oracle"]) == (1, where, "memory")
    assert told["verdict"] == f"1 difference: 1 {where}"
    story = read_story(Path(row["trace"]))
    assert story.target == f"{tmp_path / ('new' if where is Where.NEW else 'old')}/simulated.py:make_engine"
    assert len(story.story["happenings"]) == row["operations"] < 8
    assert cli.main(["replay", row["trace"], "--target", story.target]) == 1


def test_another_order_of_blocks_is_no_difference_and_its_work_is_told(tmp_path, capsys):
    code, told = verified(tmp_path, capsys, RIGHT, OTHER_ORDER, command="diff")
    assert (code, told["comparisons"][0]["situations"]) == (0, [])
    again = told["work"]["tokens computed again"]
    assert again["old"] != again["new"]
    assert told["work"]["tokens delivered"]["old"] > 1_000


@pytest.mark.slow
def test_what_clients_get_may_change_and_both_be_right(tmp_path, capsys):
    code, told = verified(tmp_path, capsys, RIGHT, REFUSES)
    assert code == 1
    assert {row["where"] for row in told["findings"]} == {Where.RIGHT}
    assert "length became refused" in {row["what"] for row in told["findings"]}
    code, told = verified(tmp_path, capsys, RIGHT, REFUSES, command="diff")
    assert (code, told["comparisons"][0]["situations"][0]["situation"]) == (1, "changed, both right: fates")


@pytest.mark.slow
def test_what_both_do_is_no_difference_and_a_lost_process_is_one(tmp_path, capsys):
    code, told = verified(tmp_path, capsys, BROKEN, BROKEN + "\n")
    assert (code, told["verdict"].split(" over ")[0]) == (0, "same behaviour")
    assert {row["where"] for row in told["findings"]} == {Where.BOTH}
    assert EXITS != RIGHT
    code, told = verified(tmp_path, capsys, RIGHT, EXITS, "--seconds", "12")
    assert code == 1
    assert "fate: the process was lost: crash" in {f"{row['oracle']}: {row['what']}" for row in told["findings"]}


@pytest.mark.slow
def test_two_commits_are_compared_and_a_page_is_written(tmp_path, capsys):
    repo = tmp_path / "repo"
    for number, text in enumerate((RIGHT, BROKEN)):
        put(repo, text)
        if not number:
            git(repo, "init", "--quiet", "--initial-branch=trunk")
        git(repo, "add", ".")
        git(repo, "commit", "--quiet", "-m", f"change {number}")
    words = ["verify", "--engine", "--git", "HEAD~1..HEAD", "--repo", str(repo), "--operations", "2500", "--seed", "1"]
    page = tmp_path / "page.md"
    words += ["--out", str(tmp_path / "out"), "--write", str(page)]
    assert cli.main([*words, "--target", "simulated:make_engine"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: 1 difference: 1 introduced"
    assert page.read_text(encoding="utf-8").startswith("## ❌ blockproof verify: 1 difference: 1 introduced\n")
    assert cli.main([*words, "--target", "simulated:make_nothing"]) == 3
    assert "has no function 'make_nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--oracle", "shadow"), "--oracle does not go with --engine"),
        (("--intended", __file__), "--intended does not go with --engine"),
        (("--target", "x.py:make"), "name two engines to compare, not 3"),
        (("--attention", "mamba"), "the engines have no 'mamba' in common; they have full"),
    ],
)
def test_a_wrong_combination_says_what_to_do_instead(tmp_path, capsys, more, said):
    engine = put(tmp_path / "engine", RIGHT)
    assert cli.main(["verify", "--engine", "--target", engine, "--target", engine, *more]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        (Played(), Played([MEMORY]), Where.NEW),
        (Played([MEMORY]), Played(), Where.OLD),
        (Played([MEMORY]), Played([MEMORY]), Where.BOTH),
        (Played([MEMORY]), Played([TOKENS]), Where.WRONG),
        (Played(fates={"a": ("stop", (1,))}), Played(fates={"a": ("length", (1,))}), Where.RIGHT),
        (Played(fates={"a": ("stop", (1,))}), Played(fates={"a": ("stop", (2,))}), Where.RIGHT),
        (Played(fates={"a": ("stop", (1,))}), Played(fates={}), None),  # cancelled before its end
    ],
)
def test_a_story_says_what_the_change_did(old, new, where):
    shown = difference_of(old, new)
    assert (shown and shown.where) == where


def test_stories_are_drawn_from_what_both_have():
    old = EngineFacts(frozenset({"drafts", "items"}), frozenset({"reset"}), {"a": (1, 2), "b": (0,)}, depth=2)
    new = EngineFacts(frozenset({"drafts"}), frozenset({"reset", "fork"}), {"a": (2, 3), "c": (True,)}, depth=1)
    common = in_common(facts_from_json(json.loads(json.dumps(facts_to_json(old)))), new)
    assert (sorted(common.offers), sorted(common.methods), common.depth) == (["drafts"], ["reset"], 1)
    assert common.options == {"a": (2,), "b": (0,), "c": (True,)}
    align = EngineFacts(unequal_blocks=True, mamba_modes=("align",), own_blocks=1)
    told = facts_from_json(json.loads(json.dumps(facts_to_json(align))))
    assert (told, in_common(told, align)) == (align, align)
    assert in_common(align, EngineFacts()) == EngineFacts(mamba_modes=("align",), own_blocks=1)
    with pytest.raises(ValueError, match="no value of mamba_modes in common"):
        in_common(align, EngineFacts(mamba_modes=("all",)))
    with pytest.raises(ValueError, match="no value of block_sizes in common"):
        in_common(EngineFacts(block_sizes=(1,)), EngineFacts(block_sizes=(2,)))
