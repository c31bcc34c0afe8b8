"""What the modules under proof see in place of `range`, `len`, `type`, `id` and `math.gcd`, which need plain values."""

import builtins
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import z3

from .guard import call, instead
from .identity import identity_watched
from .refusal import refusal
from .solver import ProofError
from .symbolic import Number, SymbolicBool, SymbolicInt, SymbolicReal, integer_term, is_plain, running, symbol
from .symbolic_run import under_way


def symbolic_len(sequence: Any) -> Any:
    """`len`; a sequence of symbolic length says it by its method `symbolic_len`."""
    method = getattr(sequence, "symbolic_len", None)
    return len(sequence) if method is None else method()


class Counted:
    """A sequence of a length that may be symbolic; which items it has is for those that inherit from it to say."""

    def __init__(self, length: Number) -> None:
        self.length = length

    def __len__(self) -> int:
        return int(self.length)

    def symbolic_len(self) -> Number:
        """How many items."""
        return self.length

    def __bool__(self) -> bool:
        return bool(self.length > 0)


def symbolic_range(*arguments: Any) -> Any:
    """`range`; with a symbolic bound, a loop of at most `Run.unroll` rounds, forking at each."""
    if not any(isinstance(argument, SymbolicInt | SymbolicBool) for argument in arguments):
        return range(*arguments)
    start, stop, step = (0, arguments[0], 1) if len(arguments) == 1 else (*arguments, 1)[:3]
    if step == 0 or (not is_plain(step) and step < 0):
        raise ProofError(
            f"{running().name}: a range with step {step!r} cannot be followed: only plain and positive steps"
        )
    return SymbolicRange(start, stop, step)


class SymbolicRange:
    """A range with a symbolic bound: it can be gone through, as often as wanted, and asked whether there is anything
    in it. Whatever else a range can do is refused."""

    __slots__ = ("_start", "_step", "_stop")

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self._start, self._stop, self._step = start, stop, step

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What `isinstance` goes by."""
        return range

    def __iter__(self) -> Iterator[Any]:
        return unrolled(self._start, self._stop, self._step)

    def __bool__(self) -> bool:
        return bool(self._start < self._stop if self._step > 0 else self._start > self._stop)

    @property
    def start(self) -> Any:
        """The first number, if there is any."""
        return self._start

    @property
    def stop(self) -> Any:
        """Where it ends."""
        return self._stop

    def symbolic_len(self) -> Any:
        """How many numbers."""
        if not self:
            return 0
        span = self._stop - self._start if self._step > 0 else self._start - self._stop
        length = -(-span // abs(self._step))
        if length > sys.maxsize:
            raise OverflowError("Python int too large to convert to C ssize_t")
        return length

    def __getattr__(self, name: str) -> Any:
        if hasattr(range, name):
            raise refusal(f"`{name}` of a range")
        raise AttributeError(f"'range' object has no attribute {name!r}")

    def _refused(self, *arguments: Any) -> Any:
        raise refusal("any use but a loop of a range")

    __len__ = __getitem__ = __reversed__ = __contains__ = __eq__ = __hash__ = __repr__ = _refused


class _Types(type):
    """`type` that says of a symbol what it stands for."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.type)

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        if len(arguments) == 1 and not named:
            if not issubclass(builtins.type(arguments[0]), STAND_FOR):
                return builtins.type(arguments[0])
            if _asking_globals().get("int", int) is not int:  # whoever asks may compare it with another `int`
                raise refusal("the type")
            return arguments[0].__class__
        return builtins.type(*arguments, **named)


def _asking_globals() -> dict[str, Any]:
    """The globals of the code that asks for a type."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__")) == call.__module__:
        frame = frame.f_back
    return {} if frame is None else frame.f_globals


class SymbolicType(metaclass=_Types):
    """What modules under proof see for `type`."""


def symbolic_id(value: Any) -> int:
    """`id`: equal integers may be one object or two, and a symbol is neither."""
    if isinstance(value, int) and not is_plain(value):
        raise refusal("the identity")
    return id(value)


def made_from_text(*arguments: Any) -> Any:
    """`eval` and `exec`: what they run is no function of a file, so its `is` cannot be watched."""
    raise refusal("what code made from a text does")


STAND_FOR = (SymbolicInt, SymbolicBool, SymbolicReal, SymbolicRange)
"""Classes whose values stand for those of a class of Python's own."""


def unrolled(start: Any, stop: Any, step: int) -> Iterator[Any]:
    """The numbers of a loop with symbolic bounds. ProofError if it goes on after `Run.unroll` rounds."""
    run, rounds, i = running(), 0, start
    while i < stop if step > 0 else i > stop:
        if rounds == run.unroll:
            raise ProofError(
                f"{run.name}: a loop over a symbolic bound goes on after {rounds} rounds: bound it in the theorem "
                "(`unroll`), and assume that it is no longer"
            )
        yield i
        rounds, i = rounds + 1, i + step


def symbolic_gcd(*numbers: Any) -> Any:
    """`math.gcd`; of two numbers of which one is symbolic, some positive common divisor (both must be positive)."""
    if not any(isinstance(number, SymbolicInt) for number in numbers):
        return math.gcd(*numbers)
    if len(numbers) != 2:
        raise ProofError(f"{running().name}: gcd of {len(numbers)} symbolic numbers: only two are supported")
    return common_divisor(*numbers)[0]


def common_divisor(x: Number, y: Number) -> tuple[Any, Any, Any]:
    """What `gcd` of two positive numbers gives, and how often it goes into each: for lemmas about it."""
    if not isinstance(x, SymbolicInt) and not isinstance(y, SymbolicInt):
        divisor = math.gcd(x, y)
        return divisor, x // divisor, y // divisor
    run, left, right = running(), integer_term(x), integer_term(y)
    if run.decide(z3.Or(left <= 0, right <= 0)):
        raise ProofError(f"{run.name}: gcd of a number that may be 0 or negative: assume that it is positive")

    def defined() -> tuple[Any, Any, Any]:
        common, x_part, y_part = [symbol(run.fresh_name(stem)) for stem in ("gcd", "times", "times")]
        # The greatest common divisor is such a number, so this assumes nothing.
        run.assume(z3.And(common.term >= 1, left == (common * x_part).term, right == (common * y_part).term))
        return common, x_part, y_part

    if run.knows(("gcd", right, left)):
        common, y_part, x_part = run.once(("gcd", right, left), defined)
        return common, x_part, y_part
    found: tuple[Any, Any, Any] = run.once(("gcd", left, right), defined)
    return found


_OURS: tuple[tuple[str, Any, Any], ...] = (
    ("range", range, symbolic_range),
    ("len", len, symbolic_len),
    ("type", type, SymbolicType),
    ("id", id, symbolic_id),
    ("eval", eval, made_from_text),
    ("exec", exec, made_from_text),
    ("gcd", math.gcd, symbolic_gcd),
)
for _, _original, _ours in _OURS:
    instead(_original, _ours)


@contextmanager
def _not_implemented_watched() -> Iterator[None]:
    """While it lasts, nothing asks whether NotImplemented is true: Python warns of that wherever it is done, and an
    answer that is none comes of a symbol sooner or later."""
    with warnings.catch_warnings():
        warnings.filterwarnings("always", "NotImplemented should not be used", DeprecationWarning)
        shown = warnings.showwarning

        def show(message: Any, category: Any, *place: Any, **named: Any) -> None:
            if str(message).startswith("NotImplemented should not be used") and under_way():
                raise refusal("the truth of the NotImplemented")
            shown(message, category, *place, **named)

        warnings.showwarning = show
        yield


@contextmanager
def symbolic_builtins(modules: Sequence[ModuleType]) -> Iterator[None]:
    """While it lasts, these modules see `range`, `len`, `type`, `id`, `eval`, `exec` and `gcd` of this file, and the
    `is` of `identity`."""
    with ExitStack() as restored:
        restored.enter_context(identity_watched(modules))
        restored.enter_context(_not_implemented_watched())
        seen = SimpleNamespace(**vars(builtins) | {name: function for name, _, function in _OURS})
        for module in modules:
            for name in [name for name, value in vars(module).items() if value is builtins and name != "__builtins__"]:
                restored.callback(setattr, module, name, builtins)
                setattr(module, name, seen)
            for name, original, function in _OURS:
                if vars(module).get(name) is original:
                    restored.callback(setattr, module, name, original)
                    setattr(module, name, function)
                elif name not in vars(module) and name != "gcd":  # a module's own `len` is left alone
                    restored.callback(delattr, module, name)
                    setattr(module, name, function)
        yield
