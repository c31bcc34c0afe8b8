"""Tests that coverage leaves out exist, and are chosen by what they hold alone."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LISTS = {
    name: Path(__file__).with_name(name).read_text(encoding="utf-8").split()
    for name in ("unmeasured.txt", "unmeasured_quick.txt")
}


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return import_module("unmeasured")


@pytest.mark.parametrize("listed", LISTS.values(), ids=LISTS)
def test_every_test_of_a_list_exists_and_is_listed_once(listed: list[str]) -> None:
    """One that was renamed would be measured again, without a word."""
    gone = []
    for name in listed:
        file, *_, function = name.split("::")
        source = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else ""
        if not re.search(rf"^ *(async )?def {function}\(", source, re.MULTILINE):
            gone.append(name)
    assert gone == []
    assert sorted(set(listed)) == listed


def test_a_test_is_in_one_list() -> None:
    slow, quick = map(set, LISTS.values())
    assert slow & quick == set()


def places(first: int, count: int) -> set[tuple[int, int, int]]:
    return {(1, line, line + 1) for line in range(first, first + count)}


def test_what_a_test_holds_alone_keeps_it_and_two_that_hold_the_same_are_not_both_left_out(unmeasured: Any) -> None:
    held = {
        "": places(0, 5),
        "long": places(0, 100),
        "twin": places(0, 100),
        "own": places(200, 100),
        "short": {(2, 1, 2)},
    }
    seconds = {"long": 9.0, "twin": 8.0, "own": 7.0, "short": 0.1, "nothing": 3.0}
    assert unmeasured.choose(seconds, held, unmeasured.SLOW) == (["long", "nothing"], 0)


def test_a_few_lines_for_many_seconds_are_given_up_and_counted(unmeasured: Any) -> None:
    bounds = unmeasured.Bounds(2.0, per_second=6.0, share=0.5)
    held = {"few": places(0, 12), "many": places(100, 41), "short": places(200, 1)}
    assert unmeasured.choose({"few": 2.0, "many": 6.0, "short": 1.9}, held, bounds) == (["few"], 12)


def test_most_seconds_for_a_line_go_first_and_only_a_share_of_all_is_given_up(unmeasured: Any) -> None:
    bounds = unmeasured.Bounds(1.0, per_second=100.0, share=0.1)
    held = {"": places(0, 900), "dear": places(1000, 40), "cheap": places(2000, 40), "large": places(3000, 90)}
    seconds = {"dear": 20.0, "cheap": 2.0, "large": 10.0}
    assert unmeasured.choose(seconds, held, bounds) == (["dear", "cheap"], 80)
