"""Request logs as files: JSON lines as the Mooncake project publishes them, and CSV files of lengths (BurstGPT, Azure).

A Mooncake log names the content of prompts: `hash_ids` has a number for each 512 tokens, and equal numbers behind equal
ones are equal content. A CSV file has lengths only, so its content is made up: the prompts of a session begin with the
one before; where there are no sessions, a share of the requests begins like an earlier one.
"""

import csv
import itertools
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TextIO

MOONCAKE_UNIT = 512
"""Tokens of a prompt that a number of `hash_ids` stands for."""
MADE_UNIT = 16
"""Tokens that a number stands for in content that is made up."""
LONGEST_LINE = 1 << 24
"""Characters of a line; the longest request has a hundredth of it."""
LEAST_OF_A_LINE = 16
"""Characters that each line counts for, at least: a device may have empty ones without end."""
LONGEST_LOG = 1 << 32
"""Characters of a log."""
LONGEST = 1 << 20
"""Tokens, prompt and output together, that a request may have."""
REMEMBERED = 1_000
"""Without sessions: a request begins like one of so many before it."""
_COLUMNS = {
    "arrival": ("timestamp", "arrivaltimestamp", "arrivedat"),
    "prompt": ("contexttokens", "requesttokens", "inputlength", "inputtokens", "prompttokens"),
    "output": ("generatedtokens", "responsetokens", "outputlength", "outputtokens"),
    "session": ("sessionid", "conversationid"),
}
"""What the columns of CSV files are called, in small letters without anything else."""


@dataclass(frozen=True)
class Logged:
    """A request of a log."""

    arrival: float
    """Seconds since the first request."""
    prompt: int
    """Tokens, at least one."""
    output: int
    """Tokens that it samples, at least one."""
    content: tuple[int, ...]
    """A number for each `Log.unit` tokens of the prompt, also for the rest at its end."""


@dataclass(frozen=True)
class Log:
    """A log, in the order of arrival."""

    unit: int
    """Tokens that a number of the content stands for."""
    requests: tuple[Logged, ...]

    def cut(self, first: int, most: int | None) -> "Log":
        """Only these requests; the first one arrives at once. ValueError if there is none."""
        chosen = self.requests[first : None if most is None else first + most]
        if not chosen:
            raise ValueError(f"there is no request {first}; the log has {len(self.requests):,}")
        begin = chosen[0].arrival
        return replace(self, requests=tuple(replace(one, arrival=one.arrival - begin) for one in chosen))

    def shortened(self, divisor: int) -> "Log":
        """All lengths divided by this, one token at least: prefixes stay shared as they are. ValueError if it does not
        divide the unit."""
        if self.unit % divisor:
            raise ValueError(f"{divisor} does not divide the {self.unit} tokens that a number of the log stands for")
        lengths = ((-(-one.prompt // divisor), -(-one.output // divisor), one) for one in self.requests)
        unit = self.unit // divisor
        return Log(unit, tuple(replace(one, prompt=prompt, output=output) for prompt, output, one in lengths))

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output together."""
        return max(one.prompt + one.output for one in self.requests)


def read_log(path: Path, seed: int = 0, shared: float = 0.5) -> Log:
    """The log in a file; a file whose name ends in .csv has columns.

    `seed` and `shared` are for content that is made up: without sessions, so many of the requests begin like an earlier
    one. ValueError, in one line with its place, for a file that cannot be read or has no request.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = _bounded(path, file)
            if path.suffix.lower() == ".csv":
                return _from_start(MADE_UNIT, _made_up(_rows(path, lines), random.Random(seed), shared), path)
            return _from_start(MOONCAKE_UNIT, (_of_line(path, number, line) for number, line in _lines(lines)), path)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: this is no text in UTF-8 (byte {error.start})") from None
    except csv.Error as error:
        raise ValueError(f"{path}: this is no CSV file: {error}") from None


def _from_start(unit: int, requests: Iterable[Logged], path: Path) -> Log:
    """The log, with arrivals counted from the first; a log may be out of order by a little."""
    ordered = sorted(requests, key=lambda one: one.arrival)
    if not ordered:
        raise ValueError(f"{path}: there is no request in it")
    return Log(unit, tuple(ordered)).cut(0, None)


def _bounded(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a file. ValueError for a line, or a file, that is longer than any log: it may be a device."""
    read = 0
    for number in itertools.count(1):
        line = file.readline(LONGEST_LINE + 1)
        read += max(len(line), LEAST_OF_A_LINE)
        if len(line) > LONGEST_LINE:
            raise ValueError(f"{path}, line {number}: more than {LONGEST_LINE:,} characters; this is no log")
        if read > LONGEST_LOG:
            raise ValueError(f"{path}: more than {LONGEST_LOG:,} characters; cut the log first")
        if not line:
            return
        yield line


def _lines(file: Iterable[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(file, 1) if line.strip())


def _of_line(path: Path, number: int, line: str) -> Logged:
    """The request in a line of a Mooncake log."""
    where = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"{where}: this is no JSON") from None
    match row:
        case {
            "timestamp": int() | float() as arrival,
            "input_length": int(prompt),
            "output_length": int(output),
            "hash_ids": list(content),
        } if all(type(one) is int and one >= 0 for one in content):
            pass
        case _:
            what = "timestamp (ms), input_length, output_length (tokens) and hash_ids (numbers)"
            raise ValueError(f"{where}: expected an object with {what}")
    one = _checked(where, arrival / 1000, prompt, output, tuple(content))
    if len(content) != -(-prompt // MOONCAKE_UNIT):
        raise ValueError(f"{where}: {prompt} tokens have {-(-prompt // MOONCAKE_UNIT)} hash_ids, not {len(content)}")
    return one


def _checked(where: str, arrival: float, prompt: int, output: int, content: tuple[int, ...] = ()) -> Logged:
    """The request, with at least one token on either side. ValueError for lengths that nobody has."""
    if not (abs(arrival) < 1e12 and prompt >= 0 and output >= 0):
        raise ValueError(f"{where}: a time or a length is out of range")
    if prompt + output > LONGEST:
        raise ValueError(f"{where}: {prompt + output} tokens; a request may have {LONGEST:,}")
    return Logged(arrival, max(prompt, 1), max(output, 1), content or (0,))


def _rows(path: Path, file: Iterable[str]) -> Iterator[tuple[Logged, str]]:
    """The requests of a CSV file without content, each with the name of its session."""
    rows = csv.DictReader(file)
    names = _columns(path, rows.fieldnames or ())
    for row in rows:
        where = f"{path}, line {rows.line_num}"
        values = {what: (row[name] or "").strip() for what, name in names.items()}
        try:
            arrival, lengths = _moment(values["arrival"]), (int(float(values["prompt"])), int(float(values["output"])))
        except (ValueError, OverflowError):
            raise ValueError(f"{where}: expected a time and two lengths, got {', '.join(values.values())}") from None
        yield _checked(where, arrival, *lengths), values.get("session", "")


def _columns(path: Path, header: Iterable[str]) -> Mapping[str, str]:
    """What each column that is read is called in this file. ValueError if one is missing."""
    plain = {"".join(filter(str.isalnum, name)).lower(): name for name in header if name}
    found = {what: next((plain[name] for name in names if name in plain), None) for what, names in _COLUMNS.items()}
    missing = [what for what, name in found.items() if name is None and what != "session"]
    if missing:
        wanted = ", ".join(f"{what} ({' or '.join(_COLUMNS[what])})" for what in missing)
        raise ValueError(f"{path}, line 1: there is no column for {wanted}")
    return {what: name for what, name in found.items() if name is not None}


def _moment(text: str) -> float:
    """Seconds: of a number, or of a date with a time. ValueError if it is neither."""
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


def _made_up(rows: Iterable[tuple[Logged, str]], draw: random.Random, shared: float) -> Iterator[Logged]:
    """The requests with content: like that of an earlier one as far as both reach, and new behind it."""
    sessions: dict[str, tuple[int, ...]] = {}
    earlier: list[tuple[int, ...]] = []
    fresh = 0
    for one, session in rows:
        units = -(-one.prompt // MADE_UNIT)
        likely = draw.random() < shared
        before = sessions.get(session, ()) if session else draw.choice(earlier) if earlier and likely else ()
        begin = before[:units]
        content = (*begin, *range(fresh, fresh + units - len(begin)))
        fresh += units - len(begin)
        if session:
            sessions[session] = content
        else:
            earlier.append(content)
            del earlier[:-REMEMBERED]
        yield replace(one, content=content)
