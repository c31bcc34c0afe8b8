"""Random programs on tables, byte strings, cut loops and linked blocks: symbolic in a proof, plain in brute force."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from textwrap import indent
from types import SimpleNamespace
from typing import Any

from .. import linked_queue
from ..free_list import queue_scene
from ..linked_queue import FreeKVCacheBlockQueue, KVCacheBlock
from ..loops import cut
from ..symbolic import SymbolicInt
from ..symbolic_bytes import Integer, byte_string, is_bytes, whole
from ..symbolic_table import Count, SymbolicTable, count
from .functions import Drawn
from .trial import Tally, Tools, WrongAnswer, try_drawn

LONGEST = 4
"""Entries of a table, blocks of a queue."""


def table(length: Any) -> Any:
    """A table with the entries 1, 2, 3, of which the even ones are marked; a list if the length is plain."""
    if not isinstance(length, SymbolicInt):
        return list(range(1, length + 1))
    return SymbolicTable(length, lambda i: i + 1, lambda i: i // 2)


def nulls(times: Any) -> Any:
    """So many null entries."""
    return [0] * (Count(times.term) if isinstance(times, SymbolicInt) else times)


_TOOLS: Tools = {
    "table": table,
    "nulls": nulls,
    "count": count,
    "byte_string": byte_string,
    "is_bytes": is_bytes,
    "whole": whole,
    "int": Integer,
    "joined": lambda function, *values: cut(function).whole(*values),
    "scene": lambda n: queue_scene(SimpleNamespace(block_kind=KVCacheBlock, queue_kind=FreeKVCacheBlockQueue), n),
}


def _program(lines: list[str], result: str, names: tuple[str, ...], assume: tuple[str, ...]) -> Drawn:
    text = indent("\n".join(lines), "    ")
    return Drawn(f"def f({', '.join(names)}):\n{text}\n    return {result}\n", names, "", assume)


def _table(drawn: random.Random) -> Drawn:
    def at() -> str:
        return drawn.choice(("0", "1", "2", "-1", "b", "b + 1", "-b"))

    def operation() -> str:
        return drawn.choice(
            (
                f"t.append({drawn.choice(('b', '7', '0'))})",
                f"t.extend([{drawn.randint(0, 9)}, b])",
                f"t[{at()}] = {drawn.choice(('b', '0', '9'))}",
                f"t = t[{at()}:]",
                f"t = t[:{at()}]",
                f"t = t[{at()}:{at()}]",
                "t = t.copy()",
                "t += nulls(b)",
                "t = t + [5]",
                "t = [6] + t",
                f"t[{at()}:] = t[{at()}:]",
                "u = t.copy(); t.append(u[0])",
            )
        )

    lines = ["t = table(a)", *(operation() for _ in range(drawn.randint(1, 4)))]
    result = drawn.choice((f"t[{at()}]", "len(t)", f"len(t) + t[{at()}]", f"t[{at()}] - t[{at()}]", "(1 if t else 0)"))
    return _program(lines, result, ("a", "b"), ("a >= 0", f"a <= {LONGEST}", "b >= -2", "b <= 4"))


def _bytes(drawn: random.Random) -> Drawn:
    def operation() -> str:
        cut_at = drawn.randint(1, 2)
        return drawn.choice(
            (
                'x = x + b"\\x01"',
                'x = b"\\x02" + x',
                "x = x + x",
                f"x = x[-{cut_at}:]",
                f"x = x[:-{cut_at}]",
                'x = x + whole(b).to_bytes(1, "big")',
                "y = byte_string(a, 0); x = y + x",
                f"x = x + byte_string({cut_at}, {drawn.randint(0, 255)})",
            )
        )

    lines = ["x = byte_string(a, b)", *(operation() for _ in range(drawn.randint(1, 3)))]
    result = drawn.choice(
        (
            'int.from_bytes(x, "big")',
            "len(x)",
            "(1 if x == byte_string(a, b) else 0)",
            'int.from_bytes(x[-1:], "big")',
            "(1 if x else 0)",
            "(1 if x != b'\\x01' else 0)",
            "(whole(b) & 3)",
        )
    )
    program = _program(lines, result, ("a", "b"), ("a >= 0", "a <= 2", "is_bytes(a, b)"))
    return replace(program, loose=True)  # of the power at a length that was added up, only its sign may be known


def _loop(drawn: random.Random) -> Drawn:
    def number() -> str:
        return drawn.choice(("a", "b", "s", "x", "2", "s + x", "x - a", "s * 2", "x * x", "abs(s)"))

    before = [f"s = {drawn.choice(('a', 'b', '0', 'a - b'))}", "n = 0"]
    if drawn.random() < 0.3:
        before.append(f"if a > {drawn.randint(0, 3)}:\n    return b")
    inside = [f"s = {number()}", f"n += {drawn.choice(('1', 'x', 's'))}"]
    if drawn.random() < 0.5:
        inside.append(f"y = {number()}\ns = s - y")
    after = [f"s = s + {drawn.choice(('n', '1', 'a'))}"] if drawn.random() < 0.5 else []
    items = ", ".join(drawn.choice(("a", "b", "1", "a + b", "-2")) for _ in range(drawn.randint(0, 3)))
    body = [*before, f"for x in [{items}]:\n{indent(chr(10).join(inside), '    ')}", *after, "return s + n"]
    loop = f"def loop(a, b):\n{indent(chr(10).join(body), '    ')}\n"
    source = f"{loop}\ndef f(a, b):\n    return joined(loop, a, b)\n"
    return Drawn(source, ("a", "b"), "", ("a >= -2", "a <= 4"))


def _heap(drawn: random.Random) -> Drawn:
    known = ["q.block(b)"]
    lines = ["q = scene(a)"]
    for number in range(drawn.randint(1, 4)):
        one = drawn.choice(known)
        kind = drawn.randrange(9)
        if kind < 3:
            lines.append(f"x{number} = q.queue.popleft()")
            known.append(f"x{number}")
        elif kind == 3:
            lines.append(f"q.queue.append({one})")
        elif kind == 4:
            lines.append(f"q.queue.remove({one})")
        elif kind == 5:
            lines.append(f"{one}.ref_cnt = b + {number}")
        elif kind == 6:
            lines.append(f"x{number} = q.queue.popleft_n({drawn.randint(0, 2)})\nq.queue.prepend_n(x{number})")
        elif kind == 7:
            lines.append(f"q.queue.append_n([{one}])")
        else:
            lines.append(f"{one}.next_free_block = {drawn.choice((*known, 'None'))}")
    one, other = drawn.choice(known), drawn.choice(known)
    result = drawn.choice(
        (
            "q.queue.num_free_blocks",
            f"(1 if {one} is {other} else 0)",
            f"(1 if {one}.next_free_block is None else 0)",
            f"(1 if {one}.next_free_block is {other} else 2)",
            f"(1 if {one}.prev_free_block is {other} else q.queue.num_free_blocks)",
            f"(0 if q.queue.fake_free_list_head.next_free_block is {one} else 1)",
        )
    )
    return _program(lines, result, ("a", "b"), ("a >= 0", "a <= 3", "b >= -2", "b < a"))


KINDS: tuple[Callable[[random.Random], Drawn], ...] = (_table, _bytes, _loop, _heap)


def draw_structure(seed: int) -> Drawn:
    """The program of this seed; the kinds take turns."""
    return KINDS[seed % len(KINDS)](random.Random(f"structures {seed}"))


def try_structure(seed: int, tally: Tally) -> None:
    """Draw a program, settle claims about it, and compare; a cut loop must be the loop."""
    drawn = draw_structure(seed)
    function = try_drawn(drawn, seed, tally, _TOOLS, (linked_queue,))
    if "joined(loop" in drawn.source:
        whole_loop, joined = function.claim("loop(a, b)"), function.claim("f(a, b)")
        for point in function.points():
            if whole_loop(*point) != joined(*point):
                tally.wrong.append(
                    WrongAnswer(seed, "a loop cut", "the loop", dict(zip("ab", point, strict=True)), drawn.source)
                )
                return


def fuzz_structures(cases: int, seed: int) -> Tally:
    """Settle at least so many claims."""
    tally = Tally()
    for number in _numbers(seed):
        if tally.cases >= cases:
            break
        try_structure(number, tally)
    return tally


def _numbers(seed: int) -> Iterator[int]:
    number = seed * 1_000_004
    while True:
        yield number
        number += 1
