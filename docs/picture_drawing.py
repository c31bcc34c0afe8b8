"""Draws the parts of a picture as SVG: the same text for the same states, legible on a phone and without colour."""

import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from picture_states import Block, Panel, Table

WIDTH, MARGIN = 400, 14
SHOWN_WIDTH = 480
"""Pixels, where there is room: texts are 13 units high."""
LINE, CHARACTERS = 18, 54
"""Height of a line of text, and how many characters surely fit into one."""
LABEL = 58
"""Width of what stands before a row."""
CELL, CELL_HEIGHT, TICK = 44, 40, 6
POOL_CELL, POOL_HEIGHT = 36, 40

STYLE = """
text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-size: 13px; fill: #1b1d20; }
.small { font-size: 11.5px; } .quiet { fill: #565b63; } .strong { font-weight: 700; }
.number { font-size: 15px; font-weight: 600; }
.paper { fill: #ffffff; stroke: #b9bdc3; }
.rule { stroke: #d5d8dc; stroke-width: 1; }
.cell { fill: #ffffff; stroke: #62676f; stroke-width: 1; }
.new { fill: none; stroke: #1b1d20; stroke-width: 3; }
.badge { fill: #eceef0; stroke: #62676f; stroke-width: 1; }
.candidate { stroke-dasharray: 4 3; }
.a { fill: #9dd0ee; } .b { fill: #f7cd85; } .c { fill: #bfe0a0; } .d { fill: #e0b8e3; } .others { fill: #c9ccd1; }
.on { fill: #15171a; }
.mark { fill: #15171a; } .ring { fill: none; stroke: #1b1d20; stroke-width: 1.5; }
.hatch { stroke: #62676f; stroke-width: 1.5; } .void { fill: #eceef0; }
.empty { fill: none; stroke: #62676f; stroke-width: .8; } .done { fill: #15171a; stroke: #15171a; stroke-width: .8; }
.read { stroke: #1d5fd1; stroke-width: 4; } .query { fill: #1d5fd1; } .reading { fill: #1d4fb0; }
.refused { fill: #a3201a; font-weight: 700; }
@media (prefers-color-scheme: dark) {
  text { fill: #ececea; } .quiet { fill: #aab0b9; }
  .paper { fill: #171a1e; stroke: #454b54; } .rule { stroke: #383d45; }
  .cell { fill: #171a1e; stroke: #969da7; } .badge { fill: #2b3036; stroke: #969da7; } .new { stroke: #ffffff; }
  .a { fill: #9dd0ee; } .b { fill: #f7cd85; } .c { fill: #bfe0a0; } .d { fill: #e0b8e3; } .others { fill: #c9ccd1; }
  text.on { fill: #15171a; } .ring { stroke: #ececea; }
  .hatch { stroke: #969da7; } .void { fill: #23272c; }
  .empty { stroke: #969da7; } .done { fill: #ececea; stroke: #ececea; }
  .held .empty { stroke: #15171a; } .held .done { fill: #15171a; stroke: #15171a; }
  .read { stroke: #82b1ff; } .query { fill: #82b1ff; } .reading { fill: #9cc0ff; } .refused { fill: #ff9c90; }
}
"""


def svg(title: str, parts: Sequence[Panel]) -> str:
    """The picture as a file."""
    sheet = _Sheet()
    for number, panel in enumerate(parts, 1):
        sheet.panel(panel, number if len(parts) > 1 else 0)
    sheet.legend()
    height = sheet.y + MARGIN - 4
    root = ET.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        width=str(SHOWN_WIDTH),
        height=str(round(height * SHOWN_WIDTH / WIDTH)),
        role="img",
    )
    root.set("aria-labelledby", "title desc")
    ET.SubElement(root, "title", id="title").text = title
    ET.SubElement(root, "desc", id="desc").text = told(parts)
    ET.SubElement(root, "style").text = STYLE
    ET.SubElement(root, "rect", {"class": "paper"}, x="0.5", y="0.5", rx="6", **_size(WIDTH - 1, height - 1))
    root.extend(sheet.drawn)
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode") + "\n"


def told(parts: Sequence[Panel]) -> str:
    """The picture in words."""
    lines = []
    for number, panel in enumerate(parts, 1):
        lines.append(" ".join([f"{number}." * (len(parts) > 1), *panel.said]).strip())
        for table in panel.tables if "tables" in panel.show else ():
            entries = ", ".join(_spoken(block) for block in table.entries)
            lines.append(f"Table of {table.request}, {table.kind}: {entries}. {_reading(table)}.")
        if "pool" in panel.show:
            lines.append(" ".join(f"{_spoken_block(block)}." for block in panel.blocks))
        if "queue" in panel.show:
            lines.append(f"Free queue, the next to be reused first: {', '.join(map(str, panel.queue)) or 'empty'}.")
    return " ".join(lines)


def _spoken(block: int) -> str:
    return f"block {block}" if block else "null"


def _spoken_block(block: Block) -> str:
    if not block.number:
        return "Block 0 is the null block"
    held = [f"held by {' and '.join(block.holders)}"] if block.holders else []
    return f"Block {block.number} is {', '.join([*held, *['free'] * block.free, *['registered'] * block.registered])}"


def _reading(table: Table) -> str:
    """What the next query reads, in words."""
    if not table.reads:
        return "nothing is computed yet" if not table.query else f"token {table.query} reads no earlier token"
    first, last = table.reads[0], table.reads[-1]
    if "Mamba" in table.kind:
        return f"token {table.query} reads the state behind token {last}"
    span = f"token {first}" if first == last else f"tokens {first} to {last}"
    return f"token {table.query} reads {span}"


class _Sheet:
    """What has been drawn so far, down to `y`."""

    def __init__(self) -> None:
        self.drawn: list[ET.Element] = []
        self.y = MARGIN - 4
        self.used: dict[str, None] = {}
        """Marks that the legend has to explain."""

    # Small things.

    def add(self, tag: str, kind: str, parent: ET.Element | None = None, /, **places: float | str) -> ET.Element:
        """An element with a class; numbers are rounded to tenths."""
        texts = {name.replace("_", "-"): _number(value) for name, value in places.items()}
        element = ET.Element(tag, {"class": kind, **texts} if kind else texts)
        (self.drawn if parent is None else parent).append(element)
        return element

    def text(
        self, words: str, x: float, y: float, kind: str = "", anchor: str = "", parent: ET.Element | None = None
    ) -> None:
        """Words at a place; `anchor` as in SVG."""
        element = self.add("text", kind, parent, x=x, y=y, **({"text_anchor": anchor} if anchor else {}))
        element.text = words

    # Parts.

    def panel(self, panel: Panel, number: int) -> None:
        """One part of the picture; a number of 0 stands for none."""
        if number > 1:
            self.y += 6
            self.add("line", "rule", x1=MARGIN, y1=self.y, x2=WIDTH - MARGIN, y2=self.y)
            self.y += 6
        self._said(panel, number)
        if "tables" in panel.show:
            for table in panel.tables:
                self._table(table, panel.blocks)
        if "pool" in panel.show:
            self._pool(panel)
        if "queue" in panel.show:
            self._queue(panel)

    def _said(self, panel: Panel, number: int) -> None:
        """What has happened, a paragraph for each operation, behind the number of the part."""
        left = MARGIN + (28 if number else 0)
        if number:
            self.add("circle", "badge", cx=MARGIN + 10, cy=self.y + LINE - 5, r=10)
            self.text(str(number), MARGIN + 10, self.y + LINE, "strong", "middle")
        for words in panel.said:
            for line in textwrap.wrap(words, CHARACTERS - (4 if number else 0), break_on_hyphens=False):
                self.y += LINE
                self.text(line, left, self.y, "refused" if words.startswith("→ refused") else "")
        self.y += 6

    def _table(self, table: Table, blocks: Sequence[Block]) -> None:
        self.y += LINE
        self.text(f"{table.request}: {table.kind}", MARGIN, self.y, "small quiet")
        self.y += 5
        count = max(len(table.entries), -(-(table.query + 1) // table.size))
        width = min(CELL, (WIDTH - 2 * MARGIN) / count)
        row = self.add("g", "table")
        row.set("data-of", f"{table.request} {table.group}")
        for i, block in enumerate(table.entries):
            self._entry(row, table, i, block, MARGIN + i * width, width, block > 0 and blocks[block].registered)
        self.y += CELL_HEIGHT
        self._reads(table, width)

    def _entry(
        self, row: ET.Element, table: Table, i: int, block: int, x: float, width: float, registered: bool
    ) -> None:
        """An entry of a table: the tokens that it covers, its block, and which of its tokens are computed."""
        kind = f"cell {_owner(table.request) if block else 'void'}"
        cell = self.add("g", "held" if block else "", row)
        self.add("rect", kind, cell, x=x, y=self.y, **_size(width, CELL_HEIGHT))
        if not block:
            self._hatch(cell, x, width, CELL_HEIGHT)
            self.used["null"] = None
        if i in table.new:
            self.add("rect", "new", cell, x=x + 1.5, y=self.y + 1.5, **_size(width - 3, CELL_HEIGHT - 3))
            self.used["new"] = None
        span = f"{i * table.size}–{(i + 1) * table.size - 1}" if table.size > 1 else f"{i}"
        on = "on" if block else ""
        self.text(span, x + width / 2, self.y + 13, f"small {on}".strip(), "middle", cell)
        self.text(str(block) if block else "∅", x + width / 2, self.y + 28, f"number {on}".strip(), "middle", cell)
        cell[-1].set("data-block", str(block))
        if registered:
            self.add("circle", "mark", cell, cx=x + width - 8, cy=self.y + 23, r=3)
            self.used["registered"] = None
        if block and "Mamba" not in table.kind and table.size <= 8:
            step = (width - 10) / table.size
            for t in range(table.size):
                done = i * table.size + t < table.computed
                place = {"x": x + 5 + t * step + 0.8, "y": self.y + CELL_HEIGHT - 9}
                self.add("rect", "done" if done else "empty", cell, **place, **_size(step - 1.6, TICK - 1))
            self.used["computed"] = None

    def _reads(self, table: Table, width: float) -> None:
        """A line below the tokens that the next query reads, and a triangle where it stands."""
        if not table.query:
            self.y += 6
            return
        inset, step = 5, (width - 10) / table.size

        def left(t: int) -> float:
            return MARGIN + t // table.size * width + inset + t % table.size * step

        y = self.y + 7
        if table.reads:
            ends = {"x1": left(table.reads[0]), "x2": left(table.reads[-1]) + step}
            self.add("line", "read", y1=y, y2=y, **ends)
        middle = min(left(table.query) + step / 2, WIDTH - MARGIN)
        self.add("polygon", "query", points=_triangle(middle, y - 4))
        self.y += LINE + 8
        self.text(_reading(table), MARGIN, self.y, "small reading")
        self.y += 5
        self.used["query"] = None

    def _pool(self, panel: Panel) -> None:
        self.y += LINE
        self.text("pool", MARGIN, self.y, "small quiet")
        self.y += 5
        row = self.add("g", "pool")
        across = int((WIDTH - 2 * MARGIN) // POOL_CELL)
        for place, block in enumerate(panel.blocks):
            if place and place % across == 0:
                self.y += POOL_HEIGHT + 4
            self._block(row, block, MARGIN + place % across * POOL_CELL, block.number in panel.new)
        self.y += POOL_HEIGHT + 4

    def _block(self, row: ET.Element, block: Block, x: float, new: bool) -> None:
        """A block: its number, who holds it, whether it is registered."""
        width, candidate = POOL_CELL - 4, block.free and block.registered
        owner = _owner(block.holders[0]) if block.holders else "void" if block.number == 0 else ""
        cell = self.add("g", "held" if block.holders else "", row)
        kind = " ".join(filter(None, ["cell", owner, "candidate" if candidate else ""]))
        self.add("rect", kind, cell, x=x, y=self.y, **_size(width, POOL_HEIGHT))
        on = "on" if block.holders else ""
        if block.number == 0:
            self._hatch(cell, x, width, POOL_HEIGHT)
            self.used["null"] = None
        if new:
            kind = "new candidate" if candidate else "new"
            self.add("rect", kind, cell, x=x + 1.5, y=self.y + 1.5, **_size(width - 3, POOL_HEIGHT - 3))
            self.used["new"] = None
        self.text(str(block.number), x + 4, self.y + 13, f"small {on}".strip(), "", cell)
        letters = "".join(block.holders) if block.number else "∅"
        size = "small" if len(letters) > 2 else "number"
        self.text(letters, x + width / 2, self.y + 31, f"{size} {on}".strip(), "middle", cell)
        if block.holders:
            self.used["held"] = None
        elif not block.registered and block.number:
            self.used["free"] = None
        if block.registered:
            kind, name = ("ring", "candidate") if candidate else ("mark", "registered")
            self.add("circle", kind, cell, cx=x + width - 8, cy=self.y + 10, r=3.5 if candidate else 3)
            self.used[name] = None

    def _queue(self, panel: Panel) -> None:
        self.y += LINE
        self.text("free queue, the next to be reused on the left", MARGIN, self.y, "small quiet")
        self.y += 5
        row = self.add("g", "queue")
        width, across = 32, (WIDTH - 2 * MARGIN) // 36
        for place, number in enumerate(panel.queue):
            if place and place % across == 0:
                self.y += 30
            x, block = MARGIN + place % across * 36, panel.blocks[number]
            kind = "cell candidate" if block.registered else "cell"
            self.add("rect", kind, row, x=x, y=self.y, rx="4", **_size(width, 26))
            if number in panel.came:
                kind = "new candidate" if block.registered else "new"
                self.add("rect", kind, row, x=x + 1.5, y=self.y + 1.5, rx="3", **_size(width - 3, 23))
                self.used["new"] = None
            self.text(str(number), x + (width - 9 * block.registered) / 2, self.y + 18, "number", "middle", row)
            row[-1].set("data-block", str(number))
            if block.registered:
                self.add("circle", "ring", row, cx=x + width - 8, cy=self.y + 8, r=3.5)
                self.used["candidate"] = None
        if not panel.queue:
            self.text("empty", MARGIN, self.y + 18, "quiet")
        self.y += 30

    def _hatch(self, cell: ET.Element, x: float, width: float, height: float) -> None:
        """Slanted lines in the lower corners, so that the words between them stay legible."""
        low = self.y + height
        for at in (6, 12):
            self.add("line", "hatch", cell, x1=x, y1=low - at, x2=x + at, y2=low)
            self.add("line", "hatch", cell, x1=x + width - at, y1=low, x2=x + width, y2=low - at)

    # The legend.

    def legend(self) -> None:
        """What the marks mean that have been used, in two columns."""
        self.y += 10
        self.add("line", "rule", x1=MARGIN, y1=self.y, x2=WIDTH - MARGIN, y2=self.y)
        for place, mark in enumerate(mark for mark in LEGEND if mark in self.used):
            self.y += (LINE + 3) * (place % 2 == 0)
            x = MARGIN + place % 2 * (WIDTH / 2 - MARGIN)
            self._key(mark, x)
            self.text(LEGEND[mark], x + 32, self.y, "small")
        self.y += 6

    def _key(self, mark: str, x: float) -> None:
        y = self.y - 13
        if mark == "query":
            self.add("line", "read", x1=x, y1=y + 8, x2=x + 14, y2=y + 8)
            self.add("polygon", "query", points=_triangle(x + 21, y + 4))
            return
        if mark == "computed":
            for i in range(4):
                self.add("rect", "done" if i < 2 else "empty", x=x + i * 6, y=y + 6, **_size(4.5, 5))
            return
        kind = {"held": "cell a", "null": "cell void", "candidate": "cell candidate", "registered": "cell a"}.get(
            mark, "cell"
        )
        self.add("rect", kind, x=x, y=y, **_size(24, 16))
        if mark == "new":
            self.add("rect", "new", x=x + 1.5, y=y + 1.5, **_size(21, 13))
        elif mark == "registered":
            self.add("circle", "mark", cx=x + 18, cy=y + 6, r=3)
        elif mark == "candidate":
            self.add("circle", "ring", cx=x + 18, cy=y + 6, r=3.5)
        elif mark != "free":
            self.text(
                "a" if mark == "held" else "∅", x + 12, y + 13, "small on" if mark == "held" else "small", "middle"
            )


LEGEND = {
    "held": "in use: who holds it",
    "registered": "registered: can be found",
    "free": "free",
    "candidate": "free, can be found",
    "null": "null: no longer read",
    "computed": "computed, not yet",
    "query": "next query (▲) reads",
    "new": "changed in this step",
}


def _triangle(x: float, y: float) -> str:
    """Points of a triangle with its tip here."""
    return " ".join(f"{_number(at)},{_number(down)}" for at, down in ((x, y), (x - 5, y + 9), (x + 5, y + 9)))


def _owner(holder: str) -> str:
    return holder if holder in "abcd" else "others"


def _size(width: float, height: float) -> dict[str, str]:
    return {"width": _number(width), "height": _number(height)}


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
