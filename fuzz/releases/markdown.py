"""What the pages about findings and deviations have in common: lines of a readable length, and links to reports."""

import re

from ..findings.prose import broken

_REPORT = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)\b")


def prose(text: str, bullet: str = "") -> list[str]:
    """The lines of a paragraph, or of a list item that begins with `bullet`; reports become links."""
    return [linked(line) for line in broken(text, bullet)]


def linked(text: str) -> str:
    """The text with a link for each report that is named like `vllm-project/vllm#39734`."""
    return _REPORT.sub(r"[\g<0>](https://github.com/\1/issues/\2)", text)
