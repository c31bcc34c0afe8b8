"""The page of a story: it is run again on its engine, and shown."""

import shlex
from collections.abc import Callable
from pathlib import Path

from ..opening.names import runs_code
from ..page.html import PageError, write_page
from ..page.story_document import story_document
from ..reports.story import StoryDocument
from ..targets.base import TargetUnavailableError
from ..traces.files import TraceError
from .deadlines import START_HANGS
from .story_fuzzing import StoryOutcome, play, read_story

MOST_PAGES = 3
"""Of one run: each takes as long as the engine takes to be made."""


def document_of_story(path: Path, target: str | None = None) -> StoryDocument:
    """The page of this file, on its own engine or on this one.

    TraceError for a file that cannot be used, and for somebody's code that is not named as the target, as a file alone
    must not run code. TargetUnavailableError if the engine cannot be started, or is lost.
    """
    stored = read_story(path)
    if not target and not stored.target:
        raise TraceError(str(path), "", "it does not say with which engine it was made; add --target")
    if target is None and runs_code(stored.target):
        remedy = f"if you trust that code, add --target {shlex.quote(stored.target)}"
        raise TraceError(str(path), "", f"the story was made with {stored.target!r}; {remedy}")
    spec = target or stored.target
    return _document(play(stored, spec, lambda line: None, shows=True), path)


def _document(outcome: StoryOutcome, path: Path) -> StoryDocument:
    spec = outcome.target
    if outcome.lost or not outcome.picture:
        why = outcome.lost or next(iter(outcome.told.get("not_built", ())), "it cannot be built for this story")
        raise TargetUnavailableError(f"{spec} cannot be shown: {why}")
    return story_document(outcome.picture, outcome.found, outcome.shown, spec, path)


def page_beside_story(
    story: Path, say: Callable[[str], None], target: str = "", page: Path | None = None
) -> Path | None:
    """Write the page of a story that was kept, beside it or as `page`, run again on its own engine or on this one.
    Returns its path; None, and why is told, if that is not possible: the story is kept."""
    path = page or story.with_suffix(".html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(document_of_story(story, target or read_story(story).target), path)
    except (PageError, TargetUnavailableError, TraceError, ValueError, OSError) as error:
        say(f"no page of it: {error}")
        return None
    return path


def with_pages(outcome: StoryOutcome, say: Callable[[str], None]) -> None:
    """Run what was found again, each in a new process: write its page, and name that with it. Where it shows nothing,
    say so: it needs the engines before it. Of many findings the first ones; none after Ctrl-C."""
    smallest = [one for one in outcome.smallest() if one.get("file") and one.get("behind") is None]
    files = [one for one in smallest if one["rule"] != START_HANGS]
    for one in files[:MOST_PAGES] if not outcome.interrupted else ():
        path = Path(one["file"])
        try:
            shown = play(read_story(path), outcome.target, lambda line: None, shows=True)
            if shown.interrupted:
                return
            if not shown.found:
                one["behind"] = outcome.task.first
                continue
            write_page(_document(shown, path), path.with_suffix(".html"))
        except (PageError, TargetUnavailableError, TraceError, ValueError, OSError) as error:
            say(f"no page of it: {error}")
        else:
            one["page"] = str(path.with_suffix(".html"))
