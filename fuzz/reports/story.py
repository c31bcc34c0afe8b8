"""What was found, and the story of an engine: what a page shows of them."""

import msgspec


class Place(msgspec.Struct, omit_defaults=True):
    """Where to look; -1 for what does not apply."""

    request: int = -1
    group: int = -1
    entry: int = -1
    position: int = -1
    """In tokens."""
    block: int = -1


class Verdict(msgspec.Struct, omit_defaults=True):
    """What was found, or that nothing was."""

    found: bool
    headline: str
    sentence: str = ""
    """The first difference, or what is wrong, explained in a sentence or two."""
    text: str = ""
    """As a terminal shows it."""
    oracle: str = ""
    observable: str = ""
    rule: str = ""
    """What the violated property demands."""
    severity: str = ""
    step: int = -1
    """Index of the step at which it shows; -1 for the construction."""
    place: Place | None = None


class Moment(msgspec.Struct, omit_defaults=True):
    """One call of a story, and what it did."""

    text: str
    request: int = -1
    """Whom it is about, if that is one."""
    more: list[str] = []
    states: list[list[int]] = []
    """Requests, by their place, that do something else from now on, and the place in `StoryDocument.states`."""
    slots: list[list[int]] = []
    """Slots that hold something else from now on: memory, slot, request (-1: nobody, -2: what nobody may read),
    position."""
    misread: list[list[int]] = []
    """Slots in which a read found something else than must be there, and what: as in `slots`."""


class StoryDocument(msgspec.Struct, omit_defaults=True, tag_field="document", tag="story"):
    """The story of an engine under simulation, stepped through."""

    version: int
    title: str
    target: str
    shape: str
    requests: list[str]
    memories: list[str]
    width: int
    """Slots of a block."""
    states: list[str]
    """What a request may do."""
    steps: list[Moment]
    verdict: Verdict
    notes: list[str] = []
    command: str = ""
    """What repeats it."""
