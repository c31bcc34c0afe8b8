"""Progress is shown to somebody who waits at a terminal, and to nobody else."""

import io
import sys

from blockproof.fuzz.reports.progress import shrinking


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_by(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with shrinking(10.0) as show:
        show(1234, 7)
    return stream.getvalue()


def test_a_search_for_a_smaller_trace_says_how_far_it_is(monkeypatch):
    assert "shrinking: 1,234 tries, 7 operations left" in shown_by(Terminal(), monkeypatch)


def test_a_log_stays_empty(monkeypatch):
    assert shown_by(io.StringIO(), monkeypatch) == ""
