"""Random small functions over integers, as source text.

What is drawn is drawn for a prover to get wrong: divisions and remainders of either sign, choices without a fork, loops
to a bound that is a variable, lists that are filled and read, calls, and what a symbol must refuse: its type, its text,
its hash, its identity.
"""

import random
from dataclasses import dataclass
from textwrap import indent

NAMES = ("a", "b", "c")
MOST_ROUNDS = 3
"""Of a drawn loop."""
DEEP = 30
"""Choices inside each other that Z3 no longer prints."""


@dataclass(frozen=True)
class Drawn:
    """A function `f` with what it calls, and what is assumed of its arguments."""

    source: str
    names: tuple[str, ...]
    """Its arguments: integers."""
    divisor: str
    """The argument that is wrapped as a `quotients.Divisor`, so it must be positive; empty if none is."""
    assume: tuple[str, ...]
    """Comparisons of the arguments, as source."""
    loose: bool = False
    """True if its symbols allow more than there is (quotients of their own, powers of which only bounds are known):
    what is proved is true all the same, but a counterexample counts only if Python agrees, as it does in a theorem."""


class _Draw:
    def __init__(self, drawn: random.Random, names: tuple[str, ...], inside_g: bool = False) -> None:
        self.random, self.names = drawn, list(names)
        self.locals = 0
        self.lists: list[str] = []
        self.inside_g = inside_g

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def small(self) -> int:
        return self.random.randint(-4, 5)

    def atom(self) -> str:
        return self.one(*self.names, *self.names, str(self.small()))

    def number(self, depth: int) -> str:
        """An expression that is an integer."""
        if depth <= 0:
            return self.atom()
        left, right = self.number(depth - 1), self.number(depth - 2)
        kind = self.random.randrange(72) % 24 if self.random.random() < 0.15 else self.random.randrange(23)
        if kind < 8:
            return f"({left} {self.one('+', '-', '+', '-', '*')} {self.atom()})"
        if kind < 13:
            by = str(self.random.choice((2, 3, 4, 5, -2, -3)))
            return f"({left} {self.one('//', '%')} {by})"
        match kind:
            case 13:
                return f"({left} {self.one('//', '%')} {self.atom()})"
            case 14:
                return f"{self.one('min', 'max')}({left}, {right})"
            case 15:
                return f"abs({left})"
            case 16:
                return f"({left} if {self.condition(depth - 1)} else {right})"
            case 17:
                return f"({left} + ({self.condition(depth - 1)}))"
            case 18:
                return f"divmod({left}, {self.random.choice((2, 3, -2))})[{self.random.randrange(2)}]"
            case 19 if self.lists:
                items = self.random.choice(self.lists)
                return self.one(f"sum({items})", f"max({items})", f"min({items})", f"{items}[0]", f"{items}[-1]")
            case 20 if self.lists:
                return self.one(
                    f"len({self.random.choice(self.lists)})", f"sorted({self.random.choice(self.lists)})[0]"
                )
            case 21:  # `g` itself does not: two calls in each call take brute force longer than anybody waits
                return f"({left} - {right})" if self.inside_g else f"g({left}, {right})"
            case 22:
                return self.one(f"({left} ** 2)", f"-{left}", f"+{left}", f"round({left})")
            case _:
                return self.odd(left)

    def odd(self, of: str) -> str:
        """What a symbol is not: the number itself."""
        return self.one(
            f"(0 if isinstance({of}, int) else 1)",
            f"(0 if type({of}) is int else 1)",
            f"int({of})",
            f"len(str({of}))",
            f"len({{{of}, 1}})",
            f"len(format({of}))",
            f"({of} << 1)",
            f"({of} & 3)",
            f"hash({of})",
            f"(1 if hasattr({of}, 'bit_length') else 0)",
            f"{{0: 1}}.get({of}, 2)",
            f"(1 if {of} in (0, 1) else 0)",
            f"(1 if {of} == 1.5 else 0)",
            f"[3, 4, 5][{of}]",
            f"(2 if ({of} > 0) is True else 3)",
            f"sum(range({of}))",
            f"int({of} / 2)",
            f"bool({of})",
            f"[1, 2, 3].index({of})",
            f"attempt(lambda: hash({of}))",
            f"attempt(lambda: {of} / 2)",
        )

    def condition(self, depth: int) -> str:
        """An expression that is a truth value."""
        left, right = self.number(depth - 1), self.atom()
        kind = self.random.randrange(10)
        if kind < 6:
            return f"{left} {self.one('<', '<=', '>', '>=', '==', '!=')} {right}"
        if kind == 6:
            return f"{self.atom()} <= {left} < {self.small()}"
        if kind == 7:
            return f"({self.condition(depth - 1)} {self.one('and', 'or')} {self.condition(depth - 1)})"
        return f"not {self.condition(depth - 1)}" if kind == 8 else f"{left} % 2 == {self.random.randrange(2)}"

    def block(self, depth: int, most: int) -> str:
        """Some statements."""
        return "\n".join(self.statement(depth) for _ in range(self.random.randint(1, most)))

    def statement(self, depth: int) -> str:
        """One statement."""
        kind = self.random.randrange(12)
        if depth and kind < 3:
            return f"if {self.condition(2)}:\n{indent(self.inside(depth), '    ')}" + self.otherwise(depth)
        if depth and kind == 3:
            self.locals += 1
            step = f"i{self.locals}"
            bound = f"min({self.atom()}, {MOST_ROUNDS})"
            body = self.assign(f"{self.random.choice(self.names)} + {step}")
            return f"for {step} in range({bound}):\n{indent(body, '    ')}"
        if depth and kind == 4:
            self.locals += 1
            count = f"n{self.locals}"
            body = f"{count} += 1\n{self.assign(self.number(1))}"
            return f"{count} = 0\nwhile {count} < {MOST_ROUNDS} and {self.condition(1)}:\n{indent(body, '    ')}"
        if kind == 5:
            self.locals += 1
            name = f"l{self.locals}"
            made = ", ".join(self.number(1) for _ in range(self.random.randint(1, 3)))
            self.lists.append(name)
            return f"{name} = [{made}]"
        if kind == 6 and self.lists:
            items = self.random.choice(self.lists)
            return self.one(
                f"{items}.append({self.number(1)})",
                f"{items} += [{self.atom()}]",
                f"{items}.insert(0, {self.atom()})",
                f"{items}[0] = {self.number(1)}",
                f"{items} = [x + {self.small()} for x in {items} if x != {self.small()}] or [0]",
                f"{items} = {items}[::-1]",
            )
        if kind == 7:
            return f"if {self.condition(1)}:\n    return {self.number(1)}"
        return self.assign(self.number(2))

    def inside(self, depth: int) -> str:
        """The statements of a branch; lists that are made there are not known behind it."""
        known = list(self.lists)
        body = self.block(depth - 1, 2)
        self.lists = known
        return body

    def otherwise(self, depth: int) -> str:
        """Perhaps an `else`."""
        return f"\nelse:\n{indent(self.inside(depth), '    ')}" if self.random.random() < 0.4 else ""

    def assign(self, value: str) -> str:
        """The value to an argument, which every path has."""
        return f"{self.random.choice(self.names)} = {value}"


ATTEMPT = "def attempt(call):\n    try:\n        call()\n        return 0\n    except Exception:\n        return 1\n"
"""A function that notices whether something can be done."""


def draw(seed: int) -> Drawn:
    """The function and the claims of this seed."""
    drawn = random.Random(seed)
    names = NAMES[: drawn.choice((1, 2, 2, 2, 3))]
    helper = _Draw(drawn, ("x", "y"), inside_g=True)
    called = f"def g(x, y):\n{indent(helper.block(1, 1), '    ')}\n    return {helper.number(1)}\n"
    body = _Draw(drawn, names)
    text = body.block(2, 3)
    kind = drawn.randrange(40)
    if kind < 4 and len(names) > 1:
        return _divided(drawn, names, body, called)
    if kind == 4:
        return _deep(drawn)
    source = f"{ATTEMPT}\n{called}\ndef f({', '.join(names)}):\n{indent(text, '    ')}\n    return {body.number(2)}\n"
    return Drawn(source, names, "", _assumed(drawn, names, ""))


def _divided(drawn: random.Random, names: tuple[str, ...], body: _Draw, called: str) -> Drawn:
    """The last argument is a divisor whose quotients have names of their own."""
    divisor, body.names = names[-1], list(names[:-1])
    text = "\n".join(f"{name} = {body.number(2)}" for name in body.names)
    result = f"{body.atom()} {body.one('//', '%')} {divisor} {body.one('-', '+')} {body.atom()} // {divisor}"
    source = f"{ATTEMPT}\n{called}\ndef f({', '.join(names)}):\n{indent(text, '    ')}\n    return {result}\n"
    return Drawn(source, names, divisor, _assumed(drawn, names, divisor), loose=True)


def _deep(drawn: random.Random) -> Drawn:
    """Two dividends with so many choices in them that Z3 shortens both, and prints them alike."""
    parts = []
    for name in "ab":
        text = name
        for number in range(DEEP):
            text = f"abs({text} - {number % 3 + 1})"
        parts.append(f"{text} {drawn.choice(('//', '%'))} c")
    source = f"def f(a, b, c):\n    return {parts[0]} - ({parts[1]})\n"
    assume = ("a >= 0", "a <= 3", "b >= 0", "b <= 3", "c >= 1", "c <= 3")
    return Drawn(source, NAMES, "c", assume, loose=True)


def _assumed(drawn: random.Random, names: tuple[str, ...], divisor: str) -> tuple[str, ...]:
    bounds = []
    for name in names:
        if name == divisor:
            bounds.append(f"{name} >= 1")
        elif drawn.random() < 0.6:
            low = drawn.randint(-2, 1)
            bounds += [f"{name} >= {low}", f"{name} <= {low + drawn.randint(0, 4)}"]
        elif drawn.random() < 0.4:
            bounds.append(f"{name} >= {drawn.randint(-3, 2)}")
    if len(names) > 1 and drawn.random() < 0.3:
        bounds.append(f"{names[0]} <= {names[1]}")
    return tuple(bounds)
