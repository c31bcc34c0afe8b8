"""Documents: what commands come to (`ResultDocument`), and what a page shows of it, typed, with the schema.

Each says in its field `document` what it is. What a command came to is printed as JSON, and shown on a terminal, in
Markdown, as JUnit (`formats`) and as a page, all from the same document. A page holds a report, a trace or a plan.

A trace is kept as its changes. Blocks are numbers, 0 is the null block. Block ids in lists are *packed*: `-n, b` stands
for the `n` blocks `b .. b + n - 1`. A block id that the pool does not have is written as the number of its blocks.
"""

import json
from collections.abc import Mapping, Sequence
from math import log1p
from typing import NamedTuple

import msgspec

from ..findings.words import plural
from .cases import ResultCase
from .charts import Chart
from .story import StoryDocument, Verdict

VERSION = 1
MOST_TRACES = 60
"""Traces that one page holds."""


class Change(msgspec.Struct, omit_defaults=True):
    """What one step has changed on one side; an empty field stands for no change."""

    outcome: str = ""
    """`done`, `refused`, `failed` or `lost`."""
    answer: str = ""
    """The outcome in words, cut off where it is long."""
    ref: list[int] = []
    """Pairs: block, references now."""
    label: list[int] = []
    """Pairs: block, label of its content now; -1 for none."""
    first: list[int] = []
    """Pairs: block, the block that a lookup of its content yields; -1 for none."""
    queue: list[list[int]] = []
    """Edits of the free queue: place, how many leave there, packed blocks that come there. The last place comes first,
    so each edit can be made as it stands."""
    tables: list[list[int]] = []
    """Group, request, entries now (-1: it has no table), then for each run of changed entries its first place, how many
    there are, and the packed blocks."""
    registered: list[int] = []
    """Triples: group, request, leading entries that count as registered; -1 for a request that is not running."""
    named: list[int] = []
    """Triples: label, group, number of its content in `nodes`."""
    small: dict[str, str] = {}
    """Other fields of the snapshot that have changed, as text."""


class Side(msgspec.Struct, omit_defaults=True):
    """A core, from its construction on."""

    name: str
    role: str
    """`model` or `target`."""
    start: Change
    """The change from an empty pool: no queue, no reference, no label."""
    steps: list[Change | None]
    """One for each step, as far as this side went; None where it is the one of the first side."""
    hidden: list[str] = []
    """What this core does not show."""


class RequestState(msgspec.Struct, array_like=True):
    """A request after a step; lengths in tokens."""

    request: int
    live: bool
    """False once it is freed."""
    computed: int
    scheduled: int
    """Tokens of the step that was allocated and has not run yet."""
    known: int
    attached: int
    """Tokens of the hit with which its tables began."""
    hit: int
    """Tokens that the last lookup found; -1 if there was none."""
    arriving: bool
    preemptions: int
    reads: list[int]
    """Per group, the first token that the query behind the computed ones reads."""


class Step(msgspec.Struct, omit_defaults=True):
    """One operation."""

    kind: str
    text: str
    """As in traces: kind, request and fields."""
    words: str
    """A sentence."""
    request: int = -1
    blocks: list[int] = []
    """Those that the operation names."""
    requests: list[RequestState] = []
    """Those that have changed."""
    tokens: list[list[int]] = []
    """Request, position, tokens that are known from there on."""
    chain: list[list[int]] = []
    """Request, place, the contents of its full hash blocks from there on (`nodes`)."""
    counted: list[str] = []
    """Known deviations and losses that were counted here."""
    copies: list[int] = []
    """Pairs: block, the block into which it is copied; both are held until the copy has run."""
    names: list[int] = []
    """Of each block whose names have changed, if it has several or is named in part, or was so until now: block, how
    many names (0: it is like any other), tokens in it that the first of them covers, and how many it holds."""
    junctions: list[int] = []
    """Pairs: request, tokens up to which others share its prefix; 0 if that is not known any more."""


class Node(msgspec.Struct, array_like=True):
    """The content of a hash block and of all before it: a node of the prefix tree."""

    parent: int
    """-1 for the first block of a sequence."""
    tokens: list[int]
    keys: str
    """What else decides the content: adapter, salt, items; empty for tokens alone."""


class GroupWords(msgspec.Struct):
    """A group of layers."""

    kind: str
    words: str
    tokens: int
    """That a table entry stands for."""


class TraceDocument(msgspec.Struct, omit_defaults=True, tag_field="document", tag="trace"):
    """A trace that was applied again."""

    version: int
    title: str
    target: str
    shape: str
    num_blocks: int
    hash_block_size: int
    groups: list[GroupWords]
    requests: list[str]
    """Names; elsewhere requests are places in this list."""
    steps: list[Step]
    sides: list[Side]
    nodes: list[Node]
    verdict: Verdict
    parting: Verdict | None = None
    """Without a model among the judges: where the model would have answered otherwise for the first time."""
    oracles: list[str] = []
    notes: list[str] = []
    command: str = ""
    """What repeats it."""


class Table(msgspec.Struct, omit_defaults=True):
    """A table of a report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    marks: list[str] = []
    """Per row: `bad`, `good`, `note` or empty."""
    bars: list[float] = []
    """Per row a share from 0 to 1; may be empty."""


class FoundCard(msgspec.Struct, omit_defaults=True):
    """One finding of a report."""

    headline: str
    text: str
    severity: str = ""
    oracle: str = ""
    observable: str = ""
    target: str = ""
    attention: str = ""
    times: int = 1
    command: str = ""
    trace: int = -1
    """Its place in `traces`."""
    why_not: str = ""
    """Why its trace is not among them."""
    page: str = ""
    """Where the page of its trace lies, seen from the page of a run that goes on; else empty."""
    file: str = ""
    """The file of its trace."""

    def whole(self) -> str:
        """All about it, with what repeats it."""
        again = [f"repeat it: {self.command}"] if self.command else []
        return "\n".join([self.headline, self.text, *again])


class Cell(msgspec.Struct, omit_defaults=True):
    """A target, an oracle and an attention type of a campaign."""

    state: str
    """`clean`, `found`, `not built` or `not run`."""
    what: list[str] = []
    """What was found there."""
    cards: list[int] = []
    """Places of these findings in the list of cards."""
    operations: int = 0
    seconds: float = 0.0
    before: str = ""
    """What the campaign before this one said, if it is known and said something else."""


class Matrix(msgspec.Struct):
    """What each oracle made of each attention type of each target."""

    targets: list[str]
    attention: list[str]
    oracles: list[str]
    cells: list[list[list[Cell]]]
    """By oracle, by attention type, by target."""


class Progress(msgspec.Struct, omit_defaults=True):
    """How far a run has come that goes on while its page is looked at."""

    words: str
    share: float = -1.0
    """Of what it is to do, from 0 to 1; below 0 if that is not known."""
    ended: bool = False
    """True if nothing will change any more."""
    written: float = 0.0
    """When the page was written, in seconds since 1970."""
    every: float = 0.0
    """Seconds after which it is written again at the earliest."""


class ReportDocument(msgspec.Struct, omit_defaults=True, tag_field="document", tag="report"):
    """A run or a campaign."""

    version: int
    title: str
    headline: str
    verdict: str
    mood: str
    """`bad`, `good` or `note`."""
    figures: list[list[str]]
    """Pairs: what, how much."""
    cards: list[FoundCard] = []
    matrix: Matrix | None = None
    charts: list[Chart] = []
    tables: list[Table] = []
    notes: list[str] = []
    traces: list[TraceDocument] = []
    command: str = ""
    progress: Progress | None = None
    """None for a file that was made of a report."""


class PlanLayer(msgspec.Struct, array_like=True):
    """A layer in a block id of its group; bytes of one rank."""

    name: str
    group: int
    stage: int
    page_bytes: int
    held_bytes: int
    """Bytes of the page that hold something; the others are padding."""


class PlanGroup(msgspec.Struct):
    """Layers that share one block table."""

    keeps: str
    """In a word or two."""
    block_tokens: int
    layers: int
    waste_bytes: int
    """Of a block id that this group holds, the bytes that hold nothing."""
    alike: int
    """The first group that is like this one; itself if none before is."""


class PlanWorker(msgspec.Struct, array_like=True):
    """Workers with the same memory, of the same stage."""

    workers: str
    """Their numbers."""
    memory_bytes: int
    block_bytes: int


class PlanDocument(msgspec.Struct, tag_field="document", tag="plan"):
    """How the cache of a model is laid out in memory."""

    version: int
    title: str
    headline: str
    verdict: str
    mood: str
    """`bad`, `good` or `note`."""
    figures: list[list[str]]
    """Pairs: what, how much."""
    layers: list[PlanLayer]
    """In the order of the model."""
    groups: list[PlanGroup]
    workers: list[PlanWorker]
    num_blocks: int
    """In the pool, the null block counted."""
    block_bytes: int
    lengths: list[int]
    """Lengths of requests in tokens, rising."""
    planned: int
    """Place in `lengths` of the one that was planned for."""
    blocks: list[list[int]]
    """By length, by group: the most blocks that one request holds."""
    at_once: list[float]
    """By length: requests that the pool holds at once; -1 for any number."""
    tables: list[Table]
    notes: list[str]
    command: str


Document = TraceDocument | StoryDocument | ReportDocument | PlanDocument
"""What a page can show."""


class Lead(NamedTuple):
    """What stands first in a report."""

    headline: str
    """One line: what was run and how much of it."""
    conclusion: str
    """One line: what was found, or that nothing was."""
    mood: str
    """`bad`, `good` or `note`."""
    figures: Sequence[Sequence[str]] = ()
    """Pairs: what, how much."""


class ResultDocument(msgspec.Struct, tag_field="document"):
    """What a command came to: the fields are its JSON, the methods what people are told of it, in all forms alike."""

    def lead(self) -> Lead:
        """What stands first."""
        raise NotImplementedError

    def cards(self) -> list[FoundCard]:
        """The findings."""
        return []

    def cases(self) -> Sequence[ResultCase]:
        """What may pass or fail. One thing, unless a kind of document parts it: it fails with each finding, and without
        any if something else is wrong."""
        failures, lead = [(card.headline, card.whole()) for card in self.told_in_full()], self.lead()
        if not failures and lead.mood != "good":
            failures = [(lead.conclusion, "\n".join([lead.conclusion, *self.notes()]))]
        return [ResultCase("blockproof", str(self.__struct_config__.tag), failures, self.lasted())]

    def told_in_full(self) -> Sequence[FoundCard]:
        """The findings that are told outside of tables."""
        return self.cards()

    def pages(self) -> list[str]:
        """The page of each finding, empty where it has none."""
        return [""] * len(self.cards())

    def found_lines(self) -> list[str]:
        """What a terminal shows of the findings before the tables."""
        return []

    def tables(self) -> Sequence[Table]:
        """All tables; those without a row are not shown."""
        return ()

    def notes(self) -> list[str]:
        """What else is to be said, a line each."""
        return []

    def footnote(self) -> str:
        """What a Markdown page says before the tables."""
        return ""

    def charts(self) -> list[Chart]:
        """ChartError if the numbers contradict each other."""
        return []

    def report(self, title: str, *, running: bool = False) -> ReportDocument:
        """The page of it. `running`: it goes on, so nothing is settled yet. ChartError as from `charts`."""
        cards = self.cards()
        headline, conclusion, mood, figures = self.lead()
        if running:
            conclusion, mood = so_far(len(cards))
        document = ReportDocument(VERSION, title, headline, conclusion, mood, [[*pair] for pair in figures], cards)
        document.notes, document.charts = self.notes(), self.charts()
        document.tables = [table for table in self.tables() if table.rows]
        return document

    def lasted(self) -> float:
        """How long it took, in seconds; 0 where that is not told."""
        return float(getattr(self, "seconds", 0.0))

    def text(self) -> str:
        """As JSON."""
        return json.dumps(msgspec.to_builtins(self), indent=2)


def so_far(found: int) -> tuple[str, str]:
    """What to say first of a run that goes on, and its mood."""
    return (f"{plural(found, 'finding')} so far", "bad") if found else ("nothing was found so far", "note")


def counted(title: str, columns: Sequence[str], counts: Mapping[str, int]) -> Table:
    """A table of counts by name, with bars of their orders of magnitude."""
    rows = [[name, f"{times:,}"] for name, times in sorted(counts.items())]
    return Table(title, columns, rows, bars=magnitudes([times for _, times in sorted(counts.items())]))


def magnitudes(counts: Sequence[int]) -> list[float]:
    """A bar for each count: the share of its logarithm in that of the largest."""
    most = log1p(max([1, *counts]))
    return [log1p(max(0, times)) / most for times in counts]


def largest_first(table: Table) -> Table:
    """The rows in the order of their bars, if it has any."""
    if table.bars:
        order = sorted(range(len(table.bars)), key=lambda row: -table.bars[row])
        table.rows, table.bars = [table.rows[row] for row in order], [table.bars[row] for row in order]
    return table


def crossed(title: str, column: str, counts: Mapping[str, Mapping[str, int]], usual: Sequence[str]) -> Table:
    """A table of counts by row and column, the usual columns first."""
    columns = sorted(
        {name for of_row in counts.values() for name in of_row}, key=lambda name: (name not in usual, name)
    )
    rows = [
        [row, *(f"{of_row[name]:,}" if name in of_row else "" for name in columns)]
        for row, of_row in sorted(counts.items())
    ]
    return Table(title, [column, *columns], rows)
