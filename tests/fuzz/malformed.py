"""Malformed documents, made from valid ones, and what a command may answer to them.

`spoiled` knows the structure of JSON: it changes, drops, doubles and moves values and names, and puts in what parsers
stumble over; now and then it damages the bytes as well. `answer` runs a command of `blockproof` in this process as the
command line does, and says what was wrong with the answer.
"""

import copy
import io
import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from random import Random
from typing import Any

from blockproof.fuzz.cli.main import main

LONGEST_S = 30.0
"""No malformed document may keep a command busy for longer."""
MOST_ERROR = 1_000
"""Longest line about what is wrong, in characters."""
ESCAPE, RIGHT_TO_LEFT = "\x1b[2J\x1b]0;title\x07", "\u202etxt\u2066"
CODE = (
    "builtins:exec", "os:abort", "os:system", "program:touch blockproof-was-here", "blockproof-was-here.py:make",
)  # fmt: skip
"""Targets that are code: a file alone must not run them."""
TEXTS = (
    "", " ", "a", "impl", "\x00", ESCAPE, RIGHT_TO_LEFT, "a\nblockproof: nothing was found\r\n", "</script>", "'\"\\",
    "{0.__class__}", "%s%n", "../../x", "__class__", "full", "start", "Submit", "ä€😀", "x" * 5_000, "\x9b31m",
    "vllm==9.9.9", "fault:free-order-reversed", "fault:nothing", "auto", "none", "[/x]", "\u2028", "\ufeff",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 3, 16, 17, 255, 2**20, 2**20 + 1, 2**31, 2**31 + 1, 2**53 + 1, 2**63, 2**64, 10**12, -(10**12),
    10**400, 0.5, -0.0, 1e300, 1.0,
)  # fmt: skip
RAW = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5_000, "1E+2", "-0", "01", "+1", "nul", "'a'", '"\\ud800"',
    '"\\udc00a"', '"\\u0000"', '"\\x00"', '"\x00"', '"\n"', "[" * 100_000, '{"a":' * 100_000, "[" * 900 + "]" * 900,
    "[" * 5_000 + "]" * 5_000, '{"a":1,"a":2}', "", ",", "// no", "[1,]", "[[],{}]",
)  # fmt: skip
"""What stands in the text as it is, whether it is JSON or not."""
_STRAY = (b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x1b[31m", b"{", b'"')
_HERE = "\ue000{}\ue001"
"""Marks where a raw text goes."""


TOO_LONG = "took too long"


class TooLongError(BaseException):
    """A command was busy for too long."""


def spoiled(text: str, random: Random) -> bytes:
    """A malformed form of a JSON document; now and then still a valid one."""
    document, raw = json.loads(text), dict[str, str]()
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        document = _changed(document, random, raw)
    data = json.dumps(document, ensure_ascii=random.random() < 0.8, indent=random.choice((None, 1)))
    for mark, token in raw.items():
        data = data.replace(json.dumps(mark), token).replace(json.dumps(mark, ensure_ascii=False), token)
    encoded = data.encode("utf-8", "surrogatepass")
    return damaged(encoded, random) if random.random() < 0.15 else encoded


def damaged(data: bytes, random: Random) -> bytes:
    """The bytes cut off, doubled, swapped, in another encoding, or with some in them that do not belong there."""
    at, to = sorted(random.randrange(len(data) + 1) for _ in range(2))
    ways = (
        lambda: data[:at],
        lambda: data[at:],
        lambda: data[:at] + data[to:],
        lambda: data[:to] + data[at:],
        lambda: data[:at] + random.choice(_STRAY) + data[at:],
        lambda: bytes(byte ^ (1 << random.randrange(8)) if place == at else byte for place, byte in enumerate(data)),
        lambda: b"\xef\xbb\xbf" + data,
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: data.decode("utf-8", "replace").encode("utf-16"),
        lambda: data.decode("utf-8", "replace").encode("latin-1", "replace"),
        lambda: data + data,
        lambda: b"",
        lambda: data + b"\x00" * 100,
    )
    return random.choice(ways)()


def places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a document, the document itself first."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from places(part, (*path, name))


def _changed(document: Any, random: Random, raw: dict[str, str]) -> Any:
    """The document with something else in one place."""
    document = copy.deepcopy(document)
    every = list(places(document))
    path = random.choice(every)
    if not path:
        return _other(document, random, raw)
    parent = _at(document, path[:-1])
    name, way = path[-1], random.randrange(9)
    if way < 5:
        parent[name] = _other(parent[name], random, raw)
    elif way == 5:
        del parent[name]
    elif way == 6:
        parent[name] = copy.deepcopy(_at(document, random.choice(every)))
    elif isinstance(parent, dict):
        parent[random.choice((*TEXTS, *parent))] = parent[name] if way == 7 else parent.pop(name)
    else:
        parent.insert(random.randrange(len(parent) + 1), copy.deepcopy(parent[name]))
    return document


def _at(document: Any, path: Sequence[Any]) -> Any:
    for name in path:
        document = document[name]
    return document


def _other(value: object, random: Random, raw: dict[str, str]) -> object:
    """Another value: one that is like it as often as one of another type."""
    if random.random() < 0.5:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return random.choice((-value, value + 1, value - 1, value * 2, *NUMBERS))
        if isinstance(value, str):
            return random.choice((*TEXTS, *CODE))
    if random.random() < 0.35:
        mark = _HERE.format(len(raw))
        raw[mark] = random.choice(RAW)
        return mark
    others = (None, True, False, [], {}, [[]], {"": None}, [value], {"op": value}, [value] * 300)
    return random.choice((*TEXTS, *NUMBERS, *others))


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    error: str
    seconds: float
    wrong: str
    """Which promise it broke; empty if none."""

    @property
    def outcome(self) -> str:
        """In a word or two, to be counted."""
        if self.wrong:
            return f"WRONG: {self.wrong}"
        names = {0: "nothing found", 1: "finding", 2: "exit 2, one line", 3: "nothing to run"}
        lost = next((kind for kind in ("crash", "hang", "memory", "protocol") if f"was lost ({kind})" in self.out), "")
        return f"the target was lost ({lost})" if lost else names[self.code]


def answer(words: Sequence[str]) -> Answer:
    """Run a command in this process, with streams that take UTF-8 and nothing else, as those of a terminal."""
    out, error = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    begin, raised, code = time.monotonic(), "", -1
    with redirect_stdout(out), redirect_stderr(error), _at_most(LONGEST_S):
        try:
            code = main(list(words))
        except TooLongError:
            raised = TOO_LONG
        except BaseException as problem:
            raised = f"raised {type(problem).__name__}"
    seconds = time.monotonic() - begin
    said, told = (_read(stream) for stream in (out, error))
    return Answer(code, said, told, seconds, raised or _broken(code, said, told))


def _read(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")


def _broken(code: int, out: str, error: str) -> str:
    if "Traceback" in error or code not in (0, 1, 2, 3):
        last = [line for line in error.splitlines() if line.strip()][-2:-1]
        return f"exit {code}, a traceback: {''.join(last)[:150]}"
    if code in (2, 3) and error:
        lines = error.splitlines()
        if code == 2 and (len(lines) != 1 or not error.startswith("blockproof: ")):
            return f"{len(lines)} lines about what is wrong"
        if max(map(len, lines)) > MOST_ERROR:
            return "a very long line about what is wrong"
    if code == 2 and not error:
        return "exit 2 without a word"
    return next((f"prints U+{ord(c):04X}" for c in out + error if not (c.isprintable() or c in "\n\t")), "")


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TooLongError if it is not over then."""

    def end(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
