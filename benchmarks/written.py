"""What the scripts that write a page have in common: the machine they ran on, and where the page goes."""

import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path


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


HOSTILE_PAGE = """# Hostile input

What malformed files, replies, arguments and texts came to, and what `kill -9` left behind. Each section is
what a script printed, below its command; `python benchmarks/hostile.py --write docs/evidence/hostile.md`, and
`guided.py`, `hostile_pages.py` and `kills.py` likewise, write it anew. What is promised, and within which
limits, is in [the trace format](../reference/trace-format.md#how-files-are-read-and-written); how the scripts
work, in [benchmarks](../../benchmarks/README.md#hostile-input-and-kills). A line about a broken promise would
begin with `WRONG`; a planted exception comes to that, a planted slow reader is not found in this way."""
"""How the page of `hostile.py`, `guided.py`, `hostile_pages.py` and `kills.py` begins."""
SECTION = re.compile(r"^## (?P<name>.+)\n(?P<rest>(?:(?!## ).*\n)*)", re.MULTILINE)


def put_section(file: Path | None, name: str, head: str, said: Sequence[str]) -> None:
    """Print what a script has come to and, if a file is named, put it there with the command.

    It becomes a section of this name, in place of the one that has it. A new file begins with `head`.
    """
    print("\n".join(said), flush=True)
    if file is None:
        return
    text = file.read_text(encoding="utf-8") if file.exists() else f"{head}\n\n"
    begin = min((found.start() for found in SECTION.finditer(text)), default=len(text))
    sections = {found["name"]: found["rest"] for found in SECTION.finditer(text)}
    sections[name] = "\n".join(["", "```", f"$ {command()}", *said, "```", "", ""])
    body = "".join(f"## {title}\n\n{rest.strip()}\n\n" for title, rest in sections.items())
    file.write_text(f"{text[:begin]}{body}".rstrip() + "\n", encoding="utf-8")


def put(text: str, file: Path | None) -> None:
    """Write a page, or print it where no file is given."""
    if file is None:
        print(text)
    else:
        file.write_text(text, encoding="utf-8")
        print(f"written to {file}")
