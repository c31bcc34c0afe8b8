"""A story as the document of a page: lanes of requests, memory by slot, and each call."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..reports.document import VERSION
from ..reports.story import Moment, StoryDocument, Verdict
from ..simulation.judges import JUDGES
from ..simulation.picture import STATES


def story_document(
    picture: Mapping[str, Any], found: Sequence[Mapping[str, Any]], told: Sequence[str], spec: str, path: Path
) -> StoryDocument:
    """What a story came to: its picture (`simulation.picture.StoryPicture`), what was found first, if anything, and the
    lines that tell it. `spec` is the engine, `path` the file of the story."""
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
        _verdict(found, told, steps),
        command=shlex.join(["blockproof", "replay", str(path), "--target", spec, "--show"]),
    )


def _moment(raw: Mapping[str, Any], requests: list[str]) -> Moment:
    """A call; whom it is about is what stands behind the first word of a call that names somebody."""
    moment = Moment(**raw)
    words = moment.text.replace(":", " ").split()
    named = [place for place, name in enumerate(requests) if words[1:2] == [name] and words[0] != "schedule"]
    moment.request = max((place for place in named), default=-1)
    return moment


def _verdict(found: Sequence[Mapping[str, Any]], told: Sequence[str], steps: list[Moment]) -> Verdict:
    if not found:
        return Verdict(False, "nothing was found", step=len(steps) - 1)
    judge, what = found[0]["judge"], found[0]["what"]
    at = next((number for number, one in enumerate(steps) if one.misread), len(steps) - 1)
    verdict = Verdict(True, f"{judge}: {what.partition(': ')[0]}", what)
    verdict.observable, verdict.rule, verdict.step = judge, JUDGES.get(judge, ""), at
    verdict.text = "\n".join([*told, "", f"{judge}: {what}"])
    return verdict
