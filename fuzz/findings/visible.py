"""Texts from elsewhere as a terminal may be given them: ids, error texts, what a target has printed.

Such a text may hold anything: sequences that clear the screen or name its window, marks that turn the direction of
writing, a line that looks like one of ours, half a character. Nothing of it is lost, it is only shown as Python writes
it in a text: an escape character as `\\x1b`.
"""

MAX_LINE = 800
"""Longest line about what is wrong, in characters: what is wrong may be a very long name."""


def whole(text: str) -> str:
    """The text with half characters (lone surrogates) as escapes: no file and no pipe can hold them.

    >>> whole("ä\\ud800")
    'ä\\\\ud800'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def visible(text: str) -> str:
    """The text with every character that cannot be printed as an escape; line ends and tabs stay.

    >>> visible("a\\x1b[31m\\tb\\nc")
    'a\\\\x1b[31m\\tb\\nc'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def visible_name(text: str) -> str:
    """The same for a text that is to stay within its line: a name, or one of several lines of a report.

    >>> visible_name("a\\nb")
    'a\\\\nb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def one_line(text: str, most: int = MAX_LINE) -> str:
    """The text in one line of at most so many characters, the middle left out of a longer one.

    >>> one_line("a  b\\n c"), one_line("x" * 20, 9)
    ('a b c', 'xx ... xx')
    """
    line = visible_name(" ".join(text.split()))
    if len(line) <= most:
        return line
    kept = (most - 5) // 2
    return f"{line[:kept]} ... {line[-kept:]}"


def _escaped(character: str) -> str:
    return repr(character)[1:-1]
