"""What the scripts have in common: their arguments, the machine they ran on, and where a page goes."""

import argparse
import os
import platform
import sys
from collections.abc import Iterable
from datetime import date
from importlib.metadata import version
from pathlib import Path


def parser(doc: str | None, written: str = "the page") -> argparse.ArgumentParser:
    """A parser that says what the script says of itself, and knows where to write what comes of it."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--write", type=Path, metavar="FILE", help=f"put {written} there; it is printed otherwise")
    return made


def command() -> str:
    """The command that was given, as a page names it."""
    return " ".join(["python", *sys.argv])


def processor() -> str:
    """The name of the processor; of its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def bind_to_one_core() -> None:
    """Stay on one core from now on, with all child processes; nothing where the system cannot do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def machine_lines(load: float, compared: str = "ratios, not numbers", also: str = "") -> list[str]:
    """Where and when something was measured; `also` names a package that matters."""
    packages = ", ".join(f"{name} {version(name.lower())}" for name in (*([also] if also else []), "blockproof"))
    return [
        f"* {date.today()}, {processor()}, {os.cpu_count()} cores, of which one is used",
        f"* Python {platform.python_version()} on {platform.system()}, {packages}",
        f"* load of the machine before the run: {load:.1f} (the machine is shared; compare {compared})",
    ]


def table(head: str, rows: Iterable[Iterable[object]]) -> list[str]:
    """A table of Markdown. The names of the columns are divided by bars; numbers stand in those that end with a colon.

    >>> table("a | b:", [["x", 1]])
    ['| a | b |', '| --- | ---: |', '| x | 1 |']
    """
    names = head.split(" | ")
    lines = [[name.removesuffix(":") for name in names], ["---:" if name.endswith(":") else "---" for name in names]]
    return [f"| {' | '.join(map(str, cells))} |" for cells in (*lines, *rows)]


def put(text: str, file: Path | None) -> None:
    """Write a page, or print it where no file is given."""
    if file is None:
        print(text)
    else:
        file.write_text(text, encoding="utf-8")
        print(f"written to {file}")
