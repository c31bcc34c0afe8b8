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
| 3 | a target could not be started, a run tested nothing, or not all of it was run, as when a worker was killed |
| 70 | a bug of blockproof itself; please report it |
| 130 | Ctrl-C, SIGTERM or SIGHUP before anything was found |
| 141 | whoever read the output has closed the pipe, as `head` does |

A run that Ctrl-C, SIGTERM or SIGHUP ends reports what it has, and saves a finding. What a command will
write to is tried before it begins. What cannot be written later, as on a disk that has become full, is
named in a line; the finding is told all the same, and its code is 1.

One word means one thing in all commands: `--json` prints one document, `--write` names a file for Markdown,
`--keep` where results are kept that a later run goes on from or is held against, `--check` where those lie,
`--seconds` how long (`90`, `30m`, `8h`), `--jobs` how many processes (0: as many as there are cores),
`--memory` a size, as in `2GiB`. An option that had another name in the version before is answered with the
new one.

Your own code, `path/file.py:factory` or `package.module:factory`, runs in a process of its own: it may
crash, hang or end the process, and each of that is a finding. `--no-isolate` runs it in the process of the
command, two to three times as fast, with its prints on the terminal and within reach of a debugger or of
coverage.
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
