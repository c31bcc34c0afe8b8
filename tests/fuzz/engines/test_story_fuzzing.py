"""Many stories over a family that is made of dictionaries; what is kept and reported of them; how the command ends."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines import story_fuzzing
from blockproof.fuzz.engines.simulated import NOT_BUILT_AGAIN, NOT_ITS_OWN, PLANTED, SimulatedFamily
from blockproof.fuzz.engines.stories import SHRUNK_OF_A_KIND, Stories, StoryTask
from blockproof.fuzz.engines.story_fuzzing import (
    FLOORS_FROM,
    StoryOutcome,
    read_story,
    simulate,
    write_story,
)
from blockproof.fuzz.findings.interruption import interrupted_by
from blockproof.fuzz.findings.story_finding import StoryFinding
from blockproof.fuzz.simulation.faults import OneAtATime
from blockproof.fuzz.simulation.protocol import ClientRequest, EngineShape
from blockproof.fuzz.simulation.story import Happening, SimulatedStory, story_to_json
from blockproof.fuzz.traces.files import TraceError
from blockproof.model.ops import Group, Shape

STORY_OF_SIX = SimulatedStory(
    EngineShape(Shape((Group("full", 2),), 9, 12, 2, 2, 16)),
    tuple(Happening(n, "add", request=ClientRequest(f"r{n}", (1, 2, 3 + n % 2), 3 + n % 2)) for n in range(6)),
)
OF_SIX = json.loads(json.dumps(story_to_json(STORY_OF_SIX)))


@dataclass(frozen=True)
class Numbers:
    """A story of numbers; it shows a finding if one of them is 7, and cannot be built if one is 13."""

    numbers: tuple[int, ...]
    kinds: str = "full"

    @property
    def alike(self) -> tuple[object, ...]:
        return (self.kinds,)

    @property
    def size(self) -> int:
        return sum(self.numbers)


class Suspect(NamedTuple):
    """A known cause, and the story without it."""

    id: str
    story: Numbers


class Family:
    """What a family's module has."""

    def __init__(self, known: str = "", without: int = 7) -> None:
        """`known`: a cause that is suspected always; the experiment leaves out the number `without`."""
        self.known, self.left_out, self.built = known, without, 0
        self.breaks = False
        """What it cannot build the engine itself can."""
        self.imagined: set[int] = set()
        """The engine itself shows nothing in stories with one of these."""

    def draw(self, seed: int, number: int, options: Sequence[str] = (), attention: Sequence[str] = ()) -> Numbers:
        return Numbers((number, number + 1))

    def run_of(self, story: Numbers, fault: str = "") -> "FakeRun":
        self.built += 1
        if 13 in story.numbers:
            raise NotImplementedError("thirteen")
        return FakeRun(story)

    def smaller(self, story: Numbers) -> Iterator[Numbers]:
        for left_out in range(len(story.numbers)):
            yield Numbers(story.numbers[:left_out] + story.numbers[left_out + 1 :])

    def suspects(self, judge: str, rule: str, what: str, story: Numbers) -> Iterator[Suspect]:
        if self.known:
            yield Suspect("never to be built", Numbers((13,)))
            yield Suspect(self.known, Numbers(tuple(n for n in story.numbers if n != self.left_out)))

    def run_without(self, suspect: Suspect, fault: str) -> "FakeRun":
        return self.run_of(suspect.story)

    def go_on_behind(self, known: str) -> None:
        """Nothing is left out."""

    def builds(self, story: Numbers) -> bool:
        return self.breaks

    def shows_anything(self, story: Numbers, fault: str, steps: int) -> bool:
        return not self.imagined & {*story.numbers}

    def story_to_json(self, story: Numbers) -> list[int]:
        return list(story.numbers)

    def story_from_json(self, raw: list[int]) -> Numbers:
        return Numbers(tuple(raw))


class FakeRun:
    """Three steps, and a finding for each 7."""

    def __init__(self, engine: Numbers) -> None:
        self.numbers = engine.numbers
        self.reached = Counter({"steps": 3, "hits": 1})

    def run(self, steps: int) -> list[StoryFinding]:
        if 7 in self.numbers:
            return [StoryFinding("contract", "S1", "seven", 2)]
        return [StoryFinding("progress", "still", "eight", 2)] if 8 in self.numbers else []


def told_by(task: StoryTask, family: Any = None) -> tuple[Any, list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    stories = Stories(family or Family(), task, lambda name, told: found.append(told) if name == "found" else None)
    return stories.run(), found


def test_a_finding_that_the_engine_itself_does_not_show_is_counted_and_not_told() -> None:
    """It is one of the engine without its known defects alone: whoever wrote that has made a mistake."""
    family = Family()
    family.imagined = {6}
    told, found = told_by(StoryTask(first=6, steps=3), family)
    assert [one["story"] for one in found] == [[7]]  # a smaller one, without the 6, is its own
    assert told.reached[f"{NOT_ITS_OWN}: contract: S1"] == 0
    family.imagined = {7}
    told, found = told_by(StoryTask(first=6, steps=6), family)
    assert (found, told.reached[f"{NOT_ITS_OWN}: contract: S1"]) == ([], 2)


@pytest.mark.parametrize("breaks", [False, True])
def test_what_cannot_be_built_without_known_defects_alone_is_told(breaks: bool) -> None:
    family = Family()
    family.breaks = breaks
    told, _ = told_by(StoryTask(first=12, steps=3), family)  # the first two stories have a 13
    assert told.reached[NOT_BUILT_AGAIN] == 2 * breaks
    more = SimulatedFamily(OneAtATime()).told({NOT_BUILT_AGAIN: 2, f"{NOT_ITS_OWN}: memory: x": 1})
    assert {f"2 {NOT_BUILT_AGAIN}", f"1 {NOT_ITS_OWN}: memory: x"} <= {*more["not_observed"]}  # type: ignore[misc]


def test_an_engine_without_a_known_defect_is_compared_with_the_engine_itself() -> None:
    family = SimulatedFamily(OneAtATime())
    assert family.shows_anything(STORY_OF_SIX, "", 500)  # nothing stands in for it yet
    assert not family.builds(STORY_OF_SIX)
    family.engine = PLANTED["forgets"](OneAtATime())
    assert family.builds(STORY_OF_SIX)
    assert family.run_of(STORY_OF_SIX).run(500)
    assert not family.shows_anything(STORY_OF_SIX, "", 500)
    assert family.shows_anything(STORY_OF_SIX, "forgets", 500)


class WithRemedies(OneAtATime):
    """It has a known defect, it says, that never shows."""

    remedies: ClassVar[dict[str, type[OneAtATime]]] = {"harmless": OneAtATime}


def test_a_planted_mistake_is_not_put_down_to_a_known_defect() -> None:
    family, task = SimulatedFamily(WithRemedies(), "forgets"), StoryTask(fault="forgets", shrink_seconds=0.0)
    (one,) = told_by(replace(task, replay=family.story_to_json(STORY_OF_SIX)), family)[1]
    assert (one["judge"], one["known"]) == ("progress", "")


def test_a_finding_is_shrunk_and_named() -> None:
    told, found = told_by(StoryTask(first=6, steps=3))
    assert (told.stories, told.steps) == (1, 3)
    (one,) = found
    assert (one["story"], one["name"], one["known"]) == ([7], "new: contract: S1", "")
    assert dict(told.counted) == {"new: contract: S1": 1}
    assert told_by(StoryTask(first=6, steps=3), Family("overlapping-items"))[1][0]["name"] == "overlapping-items"


def test_a_cause_without_which_the_same_is_found_is_not_the_cause() -> None:
    (one,) = told_by(StoryTask(first=6, steps=3), Family("overlapping-items", without=8))[1]
    assert (one["name"], one["known"]) == ("new: contract: S1", "")


class Behind(Family):
    """Its 7 hides that 8 stands still; `alone`: nothing is found without 8 either. Each is a known defect."""

    def __init__(self, alone: bool, mended: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.alone, self.mended = alone, mended

    def run_of(self, story: Numbers, fault: str = "") -> "FakeRun":
        left = Numbers(tuple(number for number in story.numbers if number not in self.mended))
        return FakeRun(Numbers(()) if self.alone and 8 not in left.numbers else left)

    def smaller(self, story: Numbers) -> Iterator[Numbers]:
        yield from ()

    def suspects(self, judge: str, rule: str, what: str, story: Numbers) -> Iterator[Suspect]:
        yield self.suspect("seven" if judge == "contract" else "eight", story)

    def suspect(self, id: str, story: Numbers) -> Suspect:
        gone = {"seven": 7, "eight": 8}[id]
        return Suspect(id, Numbers(tuple(n for n in story.numbers if n not in (gone, *self.mended))))

    def without(self, suspect: Suspect) -> "Behind":
        return Behind(self.alone, (7,))


@pytest.mark.parametrize(("alone", "known"), [(False, "seven"), (True, "")])
def test_a_cause_that_hides_another_known_one_is_named(alone: bool, known: str) -> None:
    (one,) = told_by(StoryTask(first=7, steps=3), Behind(alone))[1]
    assert one["known"] == known


class EitherWillDo(Family):
    """Each of two sevens shows the same; `many` of them are known defects."""

    def __init__(self, many: int, mended: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.many, self.mended = many, mended

    def suspects(self, judge: str, rule: str, what: str, story: Numbers) -> Iterator[Suspect]:
        return (self.suspect(str(place), story) for place in range(self.many))

    def suspect(self, id: str, story: Numbers) -> Suspect:
        gone = (*self.mended, int(id))
        return Suspect(id, Numbers(tuple(n for place, n in enumerate(story.numbers) if place not in gone)))

    def without(self, suspect: Suspect) -> "EitherWillDo":
        return EitherWillDo(self.many, (*self.mended, int(suspect.id)))


@pytest.mark.parametrize(("numbers", "known"), [([7, 7], "0"), ([7, 7, 7], "")])
def test_where_each_of_two_causes_would_do_the_first_is_named(numbers: list[int], known: str) -> None:
    for many, name in ((2, known), (1, "")):
        (one,) = told_by(StoryTask(replay=numbers, shrink_seconds=0.0), EitherWillDo(many))[1]
        assert one["known"] == name


def test_findings_of_one_kind_are_shrunk_a_few_times_and_counted_always(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family()
    monkeypatch.setattr(family, "draw", lambda *given: Numbers((7, 1)))
    told, found = told_by(StoryTask(steps=30), family)
    assert (told.stories, len(found)) == (10, SHRUNK_OF_A_KIND)
    assert dict(told.counted) == {"new: contract: S1": 10}


def test_what_cannot_be_built_is_counted_with_its_reason() -> None:
    told, found = told_by(StoryTask(first=12, steps=3))
    assert dict(told.not_built) == {"NotImplementedError: thirteen": 2}
    assert (told.stories, found) == (3, [])


def test_a_run_ends_if_no_story_makes_a_step_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family()
    monkeypatch.setattr(family, "draw", lambda seed, number, *given: Numbers((1,) if number < 5 else (13,)))
    monkeypatch.setattr("blockproof.fuzz.engines.stories.FUTILE", 20)
    told, _ = told_by(StoryTask(steps=10_000), family)
    assert (told.stories, told.steps) == (25, 15)


def test_one_story_is_replayed() -> None:
    told, found = told_by(StoryTask(replay=[7], shrink_seconds=0.0))
    assert (told.stories, [one["story"] for one in found]) == (1, [[7]])


# What is kept, and what is said.

FOUND = {"name": "new: contract: S1", "known": "", "judge": "contract", "rule": "S1", "what": "seven", "step": 2}
TOLD = {
    "stories": 1,
    "steps": 3,
    "seconds": 1.0,
    "cpu_seconds": 0.5,
    "reached": {"steps": 3},
    "by_kind": {"full": {"stories": 1}},
    "not_built": {},
    "counted": {},
}


def outcome(**changes: Any) -> StoryOutcome:
    return StoryOutcome("vllm==0.33.0", StoryTask(seed=1), **{"told": TOLD, **changes})


def test_a_file_holds_what_a_replay_needs(tmp_path: Path) -> None:
    path = write_story({**FOUND, "story": OF_SIX, "fault": "raises"}, "vllm==0.33.0", tmp_path)
    stored = read_story(path)
    assert (stored.target, stored.judge, stored.rule, stored.fault) == ("vllm==0.33.0", "contract", "S1", "raises")
    assert stored.story == OF_SIX
    path.write_text("{}")
    with pytest.raises(TraceError, match="no finding"):
        read_story(path)


def test_exit_codes() -> None:
    full = {"hits": 5}
    many = {**TOLD, "steps": FLOORS_FROM, "reached": full, "floors": full}
    assert outcome().exit_code == 0
    assert outcome(told=many).exit_code == 0
    assert outcome(told={**many, "reached": {**full, "hits": 0}}).exit_code == 1
    assert outcome(found=[{**FOUND, "story": {}}]).exit_code == 1
    assert outcome(lost="exit status -11").exit_code == 1
    assert outcome(told={**TOLD, "steps": 0}).exit_code == 3
    assert outcome(told={}, interrupted=True).exit_code == 130


def test_a_report_names_causes_with_their_numbers_and_how_to_repeat_them() -> None:
    text = "\n".join(outcome(found=[{**FOUND, "story": {}, "file": "f.json"}], told={**TOLD, "counted": {}}).lines())
    assert "new: contract: S1 (1 engine): contract, step 2: seven" in text
    assert "repeat: blockproof replay f.json --target vllm==0.33.0" in text
    assert outcome().lines()[-1] == "nothing found"
    assert outcome(lost="exit status 1").lines() == ["vllm==0.33.0, seed 1: the process was lost: exit status 1"]
    far = outcome(told={}, interrupted=True)
    far.progress = "7 steps, 2 engines"
    assert far.lines() == [
        f"vllm==0.33.0, seed 1: interrupted by {interrupted_by()} after 7 steps, 2 engines",
        "nothing found until then",
    ]


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="impl is no engine to be simulated"):
        simulate("impl", StoryTask(steps=1), None, lambda text: None)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["--target", "vllm==0.33.0", "--steps", "1"], 0),
        (["--target", "impl", "--steps", "1"], 2),
        (["--steps", "1"], 2),
        (["--replay", "nowhere.json"], 2),
    ],
)
def test_the_command_ends_with_what_was_found(given: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if "impl" not in given:
        monkeypatch.setattr(story_fuzzing, "simulate", lambda *given: outcome())
    assert main(["simulate", *given]) == code


def test_an_engine_adds_floors_of_its_own() -> None:
    class Sees(OneAtATime):
        floors: ClassVar = {"hits": 5}

    told = SimulatedFamily(Sees()).told({})
    done = StoryOutcome(
        "mine", StoryTask(), told={"steps": FLOORS_FROM, "reached": {"requests": 90, "hits": 4}, **told}
    )
    assert "hits: 4, at least 5" in done.unmet
    assert not any(line.startswith("requests: ") for line in done.unmet)
    assert done.exit_code == 1


def test_the_command_replays_a_file_and_prints_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def fuzzed(*given: Any, **more: Any) -> StoryOutcome:
        asked.append(given)
        return outcome(found=[{**FOUND, "story": {}}])

    monkeypatch.setattr(story_fuzzing, "simulate", fuzzed)
    path = write_story({**FOUND, "story": OF_SIX}, "vllm==0.33.0", tmp_path)
    assert main(["replay", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["found"][0]["what"] == "seven"
    target, task, kept, *_ = asked[0]
    assert (target, task.replay, kept) == ("vllm==0.33.0", OF_SIX, None)
