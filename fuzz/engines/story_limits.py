"""What the file of a story may not have: the same rule for shapes as for traces, and limits of what they have beside.

Sizes are limited, so that a broken or hostile file costs no more than its own size.
"""

from collections.abc import Mapping
from typing import Any

from ..simulation.story import story_from_json
from ..traces.files import TraceError
from ..traces.trace_file import MAX_MODEL_LEN, MAX_NUMBER, check_items, check_numbers, check_shape

_SIZE, _COUNT = (1, MAX_NUMBER), (0, MAX_NUMBER)
STORY_LIMITS: Mapping[str, tuple[int, int]] = {"depth": _SIZE}
ENGINE_LIMITS: Mapping[str, tuple[int, int]] = {"max_requests": _SIZE, "drafts": (0, MAX_MODEL_LEN)}
HAPPENING_LIMITS: Mapping[str, tuple[int, int]] = dict.fromkeys(("at", "patience", "length", "rounds"), _COUNT)
REQUEST_LIMITS: Mapping[str, tuple[int, int]] = {
    "max_tokens": _SIZE,
    "adapter_version": _COUNT,
    "external": (0, MAX_MODEL_LEN),
}
"""Least and most of the fields of a story and its parts, beside the core's shape."""


def check_story(raw: object, source: str) -> None:
    """TraceError, in one line, for what is no story of an engine, or one that no engine can be built for."""
    try:
        story = story_from_json(raw)
    except ValueError as error:
        raise TraceError(source, "", f"{error}; correct it, or draw it anew with simulate") from None
    check_numbers(story, source, "story")
    check_shape(story.shape.core, source, "story.shape.core")
    _check(story, STORY_LIMITS, source, "story")
    _check(story.shape, ENGINE_LIMITS, source, "story.shape")
    for number, one in enumerate(story.happenings):
        place = f"story.happenings[{number}]"
        _check(one, HAPPENING_LIMITS, source, place)
        if any(right < 0 for right in one.rights):
            raise TraceError(source, f"{place}.rights", "has a negative number; correct it")
        if one.request is not None:
            _check(one.request, REQUEST_LIMITS, source, f"{place}.request")
            check_items(one.request.items, source, f"{place}.request.items")
    if any(delay < -1 for delay in story.delays):
        raise TraceError(source, "story.delays", "has a number below -1; correct it")


def _check(record: Any, limits: Mapping[str, tuple[int, int]], source: str, place: str) -> None:
    for name, (least, most) in limits.items():
        if not least <= (value := getattr(record, name)) <= most:
            raise TraceError(source, f"{place}.{name}", f"is {value}, must be from {least} to {most}; correct it")
