"""What the pages about findings and deviations have in common: lines of a readable length, and links to reports."""

import re
import textwrap

LINE_LENGTH = 110
"""Of prose in a document, in characters; the address of a link is not counted."""
_REPORT = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)\b")


def prose(text: str, bullet: str = "") -> list[str]:
    """The lines of a paragraph, or of a list item that begins with `bullet`; reports become links."""
    broken = textwrap.wrap(
        text,
        LINE_LENGTH,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [linked(line) for line in broken]


def linked(text: str) -> str:
    """The text with a link for each report that is named like `vllm-project/vllm#39734`."""
    return _REPORT.sub(r"[\g<0>](https://github.com/\1/issues/\2)", text)
