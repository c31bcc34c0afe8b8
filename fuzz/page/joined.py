"""Several reports in one page: a run with the planted faults it is to be trusted for, and the theorems beside it."""

from collections.abc import Sequence

from .document import Document, ReportDocument
from .html import PageError

_MOODS = ("good", "note", "bad")


def joined(first: Document, more: Sequence[Document]) -> Document:
    """The first report, and behind it what the others found and show; what is worst of all of them is said first.

    The documents given are changed. PageError if one of them is no report, or if two have a matrix of targets.
    """
    for one in more:
        if not isinstance(first, ReportDocument) or not isinstance(one, ReportDocument):
            title = one.title if isinstance(first, ReportDocument) else first.title
            raise PageError(f"--with: {title} is no report of a run, a campaign, theorems or planted faults")
        _join(first, one)
    return first


def _join(first: ReportDocument, one: ReportDocument) -> None:
    if first.matrix is not None and one.matrix is not None:
        raise PageError(f"--with: {first.title} and {one.title} are both campaigns; a page shows one")
    traces, cards = len(first.traces), len(first.cards)
    for card in one.cards:
        card.trace += traces if card.trace >= 0 else 0
    if one.matrix is not None:
        for cell in (cell for oracle in one.matrix.cells for row in oracle for cell in row):
            cell.cards = [place + cards for place in cell.cards]
        first.matrix = one.matrix
    if _MOODS.index(one.mood) > _MOODS.index(first.mood):
        first.mood, first.verdict = one.mood, f"{first.verdict}; {one.title}: {one.verdict}"
    first.cards += one.cards
    first.traces += one.traces
    first.notes += [f"{one.title}: {one.verdict}; {one.headline}", *one.notes]
    first.charts += one.charts
    first.tables += one.tables
