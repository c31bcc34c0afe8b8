"""What is asked about a new release of an engine that is simulated, and what the answers say."""

from collections.abc import Iterator
from typing import Any

from ..findings.words import plural
from .bisect import one_line
from .verify_effects import Where
from .watch_parts import PartNews, Sides, WatchPart

SHARE = 0.1
"""Of the minutes, for the same stories on both."""


def engine_parts(sides: Sides) -> Iterator[WatchPart]:
    """What is asked about an engine, and how."""
    answers = ("targets", "check", "--engine", sides.new, "--json")
    yield WatchPart("answers of the engine", answers, _read_engine_check)
    seconds, kept = f"{max(1.0, 60 * sides.minutes * SHARE):.0f}", str(sides.out / "stories")
    words = ("verify", "--engine", "--target", sides.old, "--target", sides.new, "--seconds", seconds)
    yield WatchPart("simulation", (*words, "--seed", "2026", "--out", kept, "--json"), _read_simulation)


def _read_engine_check(said: Any, sides: Sides) -> PartNews:
    wrong = [one for one in said["checks"] if one["judge"]]
    told = PartNews(f"{plural(len(said['checks']), 'question')} asked, {len(wrong)} answered wrong")
    told.new += [f"{one['asks']}: {one['judge']}: {one_line(one['what'])}" for one in wrong]
    told.new += [f"the process was lost: {said['lost']}"] if said["lost"] else []
    return told


def _read_simulation(said: Any, sides: Sides) -> PartNews:
    """What the change from the old release to the new one has done to the same stories."""
    told = PartNews(f"{plural(said['operations'], 'step')} on both, {said['verdict']}")
    lists = {
        Where.NEW: told.new,
        Where.WRONG: told.new,
        Where.OLD: told.fixed,
        Where.RIGHT: told.changed,
        Where.BOTH: told.still,
    }
    for one in said["findings"]:
        command = f": `blockproof replay {one['trace']} --target {sides.new}`" if one["trace"] else ""
        lists[Where(one["where"])].append(f"{one['where']}: {one['oracle']}: {one_line(one['text'])}{command}")
    again = said["work"].get("tokens computed again", {})
    if again and again["old"] != again["new"]:
        told.changed.append(f"tokens computed again for the same stories: {again['old']:,}, now {again['new']:,}")
    return told
