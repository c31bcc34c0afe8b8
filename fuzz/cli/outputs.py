"""What a command writes to, tried before it begins: a run of hours is not to end at a folder that cannot be written.

What goes wrong later, as on a disk that has become full, is told after the findings, and hides none (`written`).
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer


def to_file(text: str, *names: str, metavar: str | None = None) -> Any:
    """An option that names a file to be written."""
    return typer.Option(*names, metavar=metavar, callback=_file, help=text)


def to_folder(text: str, *names: str, metavar: str | None = None) -> Any:
    """An option that names a folder to be written to."""
    return typer.Option(*names, metavar=metavar, callback=_folder, help=text)


def _folder(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """Callback of an option for a folder. BadParameter, in one line, if nothing can be written there."""
    return _tried(context, parameter, value, is_folder=True)


def _file(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """Callback of an option for a file; the same."""
    return _tried(context, parameter, value, is_folder=False)


def folder_or_usage(path: Path, option: str = "--out") -> Path:
    """The folder, made sure of; the same for one that is there by default, once the command is about to run."""
    _try(option, path, is_folder=True)
    return path


def tagged(kind: str, facts: Mapping[str, Any]) -> str:
    """The JSON of a command whose result has no page; like all of them it says in its first field what it is."""
    return json.dumps({"document": kind, **facts}, indent=2)


def written(code: int, steps: Sequence[Callable[[], None]]) -> int:
    """Print and write the rest of a report, a step each. Returns the exit code.

    A step that fails is told in a line that names the file, and the others are made all the same. `code` stays what
    it is if something was found; what was not written is no success.
    """
    from ..findings.visible import one_line
    from ..findings.writing import not_written
    from ..traces.files import TraceError

    for step in steps:
        try:
            step()
        except BrokenPipeError:
            raise
        except (OSError, TraceError) as error:
            why = not_written(error) if isinstance(error, OSError) else str(error)
            print(f"blockproof: {one_line(why)}", file=sys.stderr)
            code = code or 2
    return code


def _tried(context: typer.Context, parameter: typer.CallbackParam, value: Any, *, is_folder: bool) -> Any:
    source = str(context.get_parameter_source(parameter.name or ""))
    if isinstance(value, Path) and not context.resilient_parsing and not source.endswith("DEFAULT"):
        _try(parameter.opts[0], value, is_folder=is_folder)
    return value


def _try(option: str, path: Path, *, is_folder: bool) -> None:
    from ..findings.writing import try_file, try_folder

    try:
        (try_folder if is_folder else try_file)(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        what = "folder" if is_folder else "file"
        raise typer.BadParameter(f"{option}: {path}: {why}; name a {what} that can be written") from None


JunitOption = Annotated[Path | None, to_file("Write the report as JUnit XML to this file.")]
MarkdownOption = Annotated[Path | None, to_file("Write the report as Markdown to this file.")]
