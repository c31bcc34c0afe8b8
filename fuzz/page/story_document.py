"""A story as the document of a page: lanes of requests, memory by slot, and each call."""

import shlex
from collections.abc import Callable
from pathlib import Path

from ..engines.story_fuzzing import StoredStory, StoryOutcome, play, read_story
from ..reports.document import VERSION, Moment, StoryDocument, Verdict
from ..simulation.judges import JUDGES
from ..simulation.picture import STATES
from ..targets.base import TargetUnavailableError
from .html import PageError, write_page


def story_document(stored: StoredStory, spec: str, path: Path) -> StoryDocument:
    """Run the story again on this engine, and show it. ValueError for a story of `fuzz-scheduler`, which is not told
    call by call; TargetUnavailableError if the engine cannot be started, or is lost."""
    if not stored.command:
        raise ValueError(f"{path}: there is a page of what `simulate` has found, not of what `fuzz-scheduler` has")
    outcome = play(stored, spec, lambda line: None, shows=True)
    if outcome.lost or not outcome.picture:
        why = outcome.lost or next(iter(outcome.told.get("not_built", ())), "it cannot be built for this story")
        raise TargetUnavailableError(f"{spec} cannot be shown: {why}")
    picture = outcome.picture
    steps = [_moment(one, picture["requests"]) for one in picture["moments"]]
    return StoryDocument(
        VERSION,
        path.name,
        spec,
        picture["shape"],
        picture["requests"],
        picture["memories"],
        picture["width"],
        list(STATES),
        steps,
        _verdict(outcome, steps),
        command=shlex.join(["blockproof", "replay", str(path), "--target", spec, "--show"]),
    )


def page_beside_story(
    story: Path, say: Callable[[str], None], target: str = "", page: Path | None = None
) -> Path | None:
    """Write the page of a story that was kept, beside it or as `page`, run again on its own engine or on this one.
    Returns its path; None, and why is told, if that is not possible: the story is kept."""
    path = page or story.with_suffix(".html")
    try:
        stored = read_story(story)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(story_document(stored, target or stored.target, story), path)
    except (PageError, TargetUnavailableError, ValueError, OSError) as error:
        say(f"no page of it: {error}")
        return None
    return path


def _moment(raw: dict[str, object], requests: list[str]) -> Moment:
    """A call; whom it is about is what stands behind the first word of a call that names somebody."""
    moment = Moment(**raw)  # type: ignore[arg-type]  # the fields of `simulation.picture.Moment`
    words = moment.text.replace(":", " ").split()
    named = [place for place, name in enumerate(requests) if words[1:2] == [name] and words[0] != "schedule"]
    moment.request = max((place for place in named), default=-1)
    return moment


def _verdict(outcome: StoryOutcome, steps: list[Moment]) -> Verdict:
    if not outcome.found:
        return Verdict(False, "nothing was found", step=len(steps) - 1)
    found = outcome.found[0]
    at = next((number for number, one in enumerate(steps) if one.misread), len(steps) - 1)
    verdict = Verdict(True, f"{found['judge']}: {found['what'].partition(': ')[0]}", found["what"])
    verdict.observable, verdict.rule, verdict.step = found["judge"], JUDGES.get(found["judge"], ""), at
    verdict.text = "\n".join([*outcome.shown, "", f"{found['judge']}: {found['what']}"])
    return verdict
