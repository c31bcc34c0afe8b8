"""Two vLLM engines as a pair, with a connector of the release on both sides. The router is ours (`attempts`)."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

from .....model.ops import Value
from ....simulation.attempts import AttemptsRouter
from ....simulation.judges import MEMORY, PROGRESS
from ....simulation.network import Port
from ....simulation.pair import EnginePair
from ....simulation.protocol import EngineShape
from ..engine.known_causes import KNOWN, is_fixed, suspected
from ..engine.remedies import load_one_by_one
from ..engine.scheduler_config import module
from .pair_half import PairHalf


class Defect(NamedTuple):
    """A known defect: which judge it is noticed by, a text of the line, what mends it, and the first release that lacks
    it; none if the newest one has it."""

    judge: str
    said: str
    mend: Callable[[Any, Any], None]
    fixed: str = ""


def _leave_the_last_token(half: PairHalf, pair: "ReleasedPair") -> None:
    """Of no prompt the last token is computed by one engine and loaded by the other."""
    half.connector._bounded_replay = half.connector._has_mamba = True  # for whose sake the release does so


def _load_one_by_one(half: PairHalf, pair: "ReleasedPair") -> None:
    """See `load_one_by_one`."""
    load_one_by_one(half, half.connector)


DEFECTS: Mapping[str, Defect] = {
    "prompt-loaded-whole": Defect(MEMORY, "for which there is no slot", _leave_the_last_token),
    "loads-block-each-other": Defect(PROGRESS, "nothing happens", _load_one_by_one),
}
"""Those that several connectors have."""


class ReleasedPair(EnginePair):
    """An installed vLLM, twice."""

    name = "vllm"
    connector_module: ClassVar[str]
    """What must be importable."""
    half: ClassVar[Any]
    """Makes one of the engines: a class, a `PairHalf`."""
    defects: ClassVar[Mapping[str, Defect]] = DEFECTS
    offers = frozenset({"failures", "salts", "priorities"})
    attention: tuple[str, ...] = (
        "full",
        "full",
        "full+sliding",
        "full+sliding",
        "sliding",
        "full+chunked",
        "full+mamba",
        "full+mamba",
    )
    mamba_modes = ("align",)
    block_sizes = (4, 8, 16)
    own_blocks = 1
    timeout = 200
    floors: Mapping[str, int] = {"hits": 5, "transfers ended": 20, "kv expired req": 1}
    options: Mapping[str, tuple[Value, ...]] = {
        "asynchronous": (False, False, True),
        "policy": ("fcfs", "priority"),
        "kv_load_failure_policy": ("fail", "recompute"),
    }

    def __init__(self, mended: tuple[str, ...] = ()) -> None:
        """`mended`: known defects that it does not have. ImportError, or whatever else a failing import raises."""
        self.version = str(module("version").__version__)
        self._mended = mended
        self._met: Counter[str] = Counter()
        module(self.connector_module)
        super().__init__(AttemptsRouter, self._half, self._half)

    @property
    def remedies(self) -> Mapping[str, Callable[[], "ReleasedPair"]]:
        """By known defect, how a pair without it is made."""
        names = [name for name in {**self.defects, **KNOWN} if name not in self._mended]
        return {name: partial(type(self), (*self._mended, name)) for name in names}

    def suspects(self, judge: str, what: str, story: Any) -> list[str]:
        """The known defects that may lead to such a finding."""
        own = [name for name, defect in self.defects.items() if judge == defect.judge and defect.said in what]
        own = [name for name in own if not is_fixed(self.defects[name].fixed, self.version)]
        known = suspected(self.version, judge, what, story, self.half.connector_name)
        return own + [name for name in known if name not in self.defects]

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        self._depths = dict.fromkeys(self._depths, 1 + bool(shape.options["asynchronous"]))
        self._met = Counter()
        super().start(shape)

    def _half(self, shape: EngineShape, port: Port) -> PairHalf:
        half: PairHalf = type(self).half(
            shape, port, self._met, [name for name in self._mended if name not in self.defects]
        )
        for name in self._mended:
            if name in self.defects:
                self.defects[name].mend(half, self)
        return half

    def keeps(self, engine: str, request: str) -> bool:
        """True if the first engine still holds the blocks of a request for the second one."""
        half = self._halves["prefill"]
        assert isinstance(half, PairHalf)
        return half.keeps(engine, request)

    def counts(self) -> Mapping[str, int]:
        """What became of messages and of blocks."""
        return self._network.counts + self._met
