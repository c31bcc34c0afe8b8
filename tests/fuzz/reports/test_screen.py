"""What reaches the terminal: visible text, whatever it was made of, and rich's own colours."""

import io
import re
import sys
from contextlib import redirect_stdout

import pytest
from blockproof.fuzz.reports.document import Table
from blockproof.fuzz.reports.formats import show_tables
from blockproof.fuzz.reports.screen import guarded, unguarded

HOSTILE = "[/x][red]\x1b[2J\u202e"
SHOWN = "[/x][red]\\x1b[2J\\u202e"


class Screen(io.StringIO):
    """A stream that may be a terminal."""

    is_terminal = False

    def isatty(self):
        return self.is_terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_tables_show_hostile_texts_and_keep_their_own_colours(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    with redirect_stdout(Screen()) as out, guarded():
        out.is_terminal = terminal
        show_tables(HOSTILE, [Table("title", ("what",), ((HOSTILE,),))], HOSTILE, bad=True, first=[HOSTILE])
    text, coloured = re.subn(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert text.count(SHOWN) == 4
    assert bool(coloured) is terminal
    assert all(character.isprintable() or character == "\n" for character in text)


def test_both_streams_are_guarded_in_the_block_only_and_once(capsys):
    before = sys.stdout, sys.stderr
    with guarded(), guarded():
        assert unguarded(sys.stdout) is before[0]
        assert unguarded(sys.stderr) is before[1]
        print("\x07a\tb")
        print("\x1b]0;t", file=sys.stderr)
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr() == ("\\x07a\tb\n", "\\x1b]0;t\n")


def test_a_stream_that_lacks_a_character_is_given_its_escape():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    with redirect_stdout(stream), guarded():
        print("\u00e4\ud800")
    assert raw.getvalue() == b"\\xe4\\ud800\n"
