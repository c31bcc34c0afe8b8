"""The page about a release that was watched."""

import os
import platform
import time
from collections.abc import Iterator, Sequence

from ..findings.interruption import interrupted_by
from ..findings.prose import broken
from ..findings.words import plural
from .watch import Watched

SECTIONS = {
    "new": "New",
    "fixed": "Fixed",
    "changed": "Changed",
    "still": "Still there",
}


def page(watched: Watched, command: str) -> str:
    """What was found as Markdown: the verdict, a table of the parts, and a section for each kind of line."""
    sides = watched.sides
    lines = [
        f"# {sides.new}, held against {sides.old}",
        "",
        "Written by",
        f"`{command}`",
        f"on {time.strftime('%Y-%m-%d', time.gmtime())}, {machine()}.",
        "",
        f"**{verdict(watched)}**",
        "",
        "| part | what it came to | minutes |",
        "| --- | --- | ---: |",
    ]
    for one in watched.done:
        told = one.told.figures if one.told else f"could not be judged: {one.problem}"
        lines.append(f"| {one.part.name} | {_cell(told)} | {one.seconds / 60:.1f} |")
    total = sum(one.seconds for one in watched.done)
    lines += [f"| all | | {total / 60:.1f} |", ""]
    for name, title in SECTIONS.items():
        lines += [f"## {title}", "", *_items(watched.lines(name)), ""]
    lines += ["## Could not be judged", "", *_items(watched.open), ""]
    lines += ["## Commands", "", *_items([f"{one.part.name}: `{one.part.command}`" for one in watched.done]), ""]
    return "\n".join(lines)


def verdict(watched: Watched) -> str:
    """One line: how much is new, fixed and changed."""
    counts = [f"{len(watched.lines(name))} {title.lower()}" for name, title in SECTIONS.items()]
    ended = f"; ended by {interrupted_by()}" if watched.interrupted else ""
    return f"{', '.join(counts)}; {plural(len(watched.open), 'thing')} could not be judged{ended}"


def machine() -> str:
    """The machine in words, without its name."""
    cores = plural(os.cpu_count() or 1, "core")
    return f"{cores}, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def _items(lines: Sequence[str]) -> Iterator[str]:
    """A list; what has several lines is indented below its first one. A command at its end has a line of its own."""
    for line in lines:
        first, *rest = line.splitlines()
        words, colon, command = first.partition(": `")
        yield from broken(words + colon.rstrip(" `"), "* ")
        if command:
            yield f"  `{command}"
        yield from (f"  {more}" if more else "" for more in rest)
    if not lines:
        yield "Nothing."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
