"""The runner of a job of continuous integration: where annotations, outputs and the summary go."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

MAX_MESSAGE = 4000
"""Longest text of an annotation, in characters; the log and the summary have all of it."""


class Runner:
    """Any runner: headlines in the log, and nothing else."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` writes a line of the log."""
        self._say = say

    def group(self, title: str) -> None:
        """What follows in the log belongs together, up to `end_group`."""
        self._say(f"== {title}")

    def end_group(self) -> None:
        """The end of a group."""

    def error(self, title: str, text: str, file: str | None = None) -> None:
        """Something is wrong, in this file of the repository if that is known."""

    def output(self, name: str, value: str) -> None:
        """A value for later steps of the job."""

    def summarize(self, markdown: str) -> None:
        """Add to the page that shows what the job did."""


class Github(Runner):
    """GitHub Actions: workflow commands in the log, and the files that the runner names."""

    def __init__(self, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        super().__init__(say)
        self._environ = environ

    def group(self, title: str) -> None:
        """A part of the log that can be folded."""
        self._say(f"::group::{_data(title)}")

    def end_group(self) -> None:
        """The end of it."""
        self._say("::endgroup::")

    def error(self, title: str, text: str, file: str | None = None) -> None:
        """An annotation."""
        root = self._environ.get("GITHUB_WORKSPACE", os.curdir)
        place = f"file={_property(os.path.relpath(file, root))}," if file else ""
        self._say(f"::error {place}title={_property(f'blockproof: {title}')}::{_data(text[:MAX_MESSAGE])}")

    def output(self, name: str, value: str) -> None:
        """An output of the step."""
        self._append("GITHUB_OUTPUT", f"{name}={value}\n")

    def summarize(self, markdown: str) -> None:
        """A part of the job's summary."""
        self._append("GITHUB_STEP_SUMMARY", f"{markdown}\n")

    def _append(self, variable: str, text: str) -> None:
        if path := self._environ.get(variable):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(text)


def runner_here(environ: Mapping[str, str], say: Callable[[str], None]) -> Runner:
    """The runner that these environment variables are of."""
    return Github(environ, say) if environ.get("GITHUB_ACTIONS") == "true" else Runner(say)


def _data(text: str) -> str:
    """The text of a workflow command: one line, in which line breaks are written out."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A property of a workflow command, which may hold neither of the signs that separate them."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
