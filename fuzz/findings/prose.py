"""Lines of prose in the pages that are written."""

import textwrap

LINE_LENGTH = 110
"""Of prose in a document, in characters; the address of a link is not counted."""


def broken(text: str, bullet: str = "") -> list[str]:
    """The lines of a paragraph, or of a list item that begins with `bullet`."""
    return textwrap.wrap(
        text,
        LINE_LENGTH,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )
