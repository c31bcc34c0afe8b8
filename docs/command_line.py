"""Every command with its arguments and options, as `--help` tells them, for the page of the command line.

python docs/command_line.py [--write docs/reference/command-line.md]
"""

import argparse
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

LINE_LENGTH = 110
HEAD = """\
# The command line

Written by `python docs/command_line.py --write docs/reference/command-line.md` from what `--help` says.
A test compares the two.

Exit codes, of every command:

| code | meaning |
| --- | --- |
| 0 | nothing was found |
| 1 | a finding, or a floor that was not reached |
| 2 | wrong usage or bad input; one line says file, place and remedy |
| 3 | a target could not be started, or a run tested nothing |
| 70 | a bug of blockproof itself; please report it |
| 130 | Ctrl-C before anything was found |
| 141 | whoever read the output has closed the pipe, as `head` does |

A run that Ctrl-C ends reports what it has, and saves a finding.
"""


def page() -> str:
    """The page as Markdown."""
    from blockproof.fuzz.cli.main import app

    commands = dict(_commands(typer.main.get_command(app), "blockproof"))
    index = [f"- [{name}](#{name.replace(' ', '-')})" for name in commands]
    parts = [HEAD, "\n".join(index) + "\n", *(_section(name, command) for name, command in commands.items())]
    return "\n".join(parts)


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The commands of a group, those of groups in it included, by their full names."""
    for part, inner in command.commands.items():
        if not hasattr(inner, "commands") or inner.invoke_without_command:
            yield f"{name} {part}", inner
        if hasattr(inner, "commands"):
            if inner.invoke_without_command:
                yield f"{name} {part}", inner
            yield from _commands(inner, f"{name} {part}")


def _section(name: str, command: Any) -> str:
    """One command."""
    context = command.context_class(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f"## {name}", "", "```", usage, "```", ""]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), LINE_LENGTH, break_on_hyphens=False), ""]
    if command.epilog:
        what, _, example = command.epilog.partition(": ")
        lines += [f"{what}:", "", "```", example, "```", ""]
    rows = [record for one in command.params if (record := one.get_help_record(context))]
    if rows:
        lines += ["| argument or option | meaning |", "| --- | --- |"]
        lines += [f"| `{_cell(spelling)}` | {_cell(meaning)} |" for spelling, meaning in rows]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text as it may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="write the page here instead of printing it")
    where = parser.parse_args().write
    if where is None:
        print(page(), end="")
    else:
        where.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
