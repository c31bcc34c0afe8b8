"""Two vLLM engines as a pair, with the release's own NixlConnector on both sides: one computes prompts, one reads their
blocks and answers. The router is ours (`pair_router`).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ....model.ops import Value
from ...simulation.judges import FATE, MEMORY, PROGRESS
from ...simulation.network import Port
from ...simulation.pair import EnginePair
from ...simulation.protocol import EngineShape
from .known_causes import KNOWN, is_fixed, suspected
from .nixl_agent import NIXL
from .nixl_half import NixlHalf
from .pair_router import AttemptsRouter
from .scheduler_config import module


def _leave_the_last_token(half: NixlHalf, pair: "NixlPair") -> None:
    """Of no prompt the last token is computed by one engine and loaded by the other."""
    half.connector._bounded_replay = half.connector._has_mamba = True  # for whose sake the release does so


def _pair_nothing_with_nothing(half: NixlHalf, pair: "NixlPair") -> None:
    """Where nothing of a group is to be read, nothing is read of the other engine."""
    trim = half.worker._apply_prefix_caching

    def trimmed(decode_block_ids: Any, prefill_block_ids: Any, **sizes: Any) -> Any:
        pairs = zip(decode_block_ids, prefill_block_ids, strict=True)
        return trim(decode_block_ids, [theirs if mine else [] for mine, theirs in pairs], **sizes)

    half.worker._apply_prefix_caching = trimmed


def _fail_what_came_too_late(half: NixlHalf, pair: "NixlPair") -> None:
    """A read fails that ends when the other engine does not hold its blocks any more."""
    half.agent.may_read = pair.keeps


def _end_who_failed(half: NixlHalf, pair: "NixlPair") -> None:
    """Nobody goes on whose blocks could not be had."""
    half.ends_failed = True


def _load_one_by_one(half: NixlHalf, pair: "NixlPair") -> None:
    """Nobody is loaded while somebody who was holds blocks and does not run."""
    ask = half.connector.get_num_new_matched_tokens

    def asked(request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        tokens, later = ask(request, num_computed_tokens)
        own, running = half.scheduler.kv_cache_manager.get_block_ids, half.scheduler.running
        others = [one for one in half.scheduler.requests.values() if one is not request and one not in running]
        if later and any(any(own(one.request_id)) for one in others):
            return None, False
        return tokens, later

    half.connector.get_num_new_matched_tokens = asked


class _Defect(NamedTuple):
    """A known defect: which judge it is noticed by, a text of the line, what mends it, and the first release that lacks
    it; none if the newest one has it."""

    judge: str
    said: str
    mend: Callable[[NixlHalf, "NixlPair"], None]
    fixed: str = ""


DEFECTS: Mapping[str, _Defect] = {
    "prompt-loaded-whole": _Defect(MEMORY, "for which there is no slot", _leave_the_last_token),
    "nothing-to-read-of-a-group": _Defect(FATE, "AssertionError", _pair_nothing_with_nothing),
    "read-behind-the-lease": _Defect(MEMORY, "holds", _fail_what_came_too_late),
    "loads-block-each-other": _Defect(PROGRESS, "nothing happens", _load_one_by_one),
    "vllm-project/vllm#52234": _Defect(MEMORY, "", _end_who_failed, fixed="0.30"),
}
"""Those of the halves of NixlConnector (docs/evidence/connectors.md)."""


class NixlPair(EnginePair):
    """An installed vLLM, twice."""

    name = "vllm"
    offers = frozenset({"failures", "salts", "priorities"})
    attention = ("full", "full", "full+sliding", "full+sliding", "sliding", "full+chunked", "full+mamba", "full+mamba")
    mamba_modes = ("align",)
    block_sizes = (4, 8, 16)
    own_blocks = 1
    timeout = 200
    floors: Mapping[str, int] = {"hits": 5, "transfers ended": 20, "kv expired req": 1, "failed handshake": 1}
    options: Mapping[str, tuple[Value, ...]] = {
        "asynchronous": (False, False, True),
        "policy": ("fcfs", "priority"),
        "kv_load_failure_policy": ("fail", "recompute"),
        "kv_lease_duration": (30, 12, 60),
        "engine_ttl": (3600, 40),
    }

    def __init__(self, mended: tuple[str, ...] = ()) -> None:
        """`mended`: known defects that it does not have. ImportError, or whatever else a failing import raises."""
        self.version = str(module("version").__version__)
        self._mended = mended
        self._met: Counter[str] = Counter()
        module(f"{NIXL}.pull_worker")
        super().__init__(AttemptsRouter, self._half, self._half)

    @property
    def remedies(self) -> Mapping[str, Callable[[], "NixlPair"]]:
        """By known defect, how a pair without it is made."""
        names = [name for name in {**DEFECTS, **KNOWN} if name not in self._mended]
        return {name: partial(NixlPair, (*self._mended, name)) for name in names}

    def suspects(self, judge: str, what: str, story: Any) -> list[str]:
        """The known defects that may lead to such a finding."""
        own = [name for name, defect in DEFECTS.items() if judge == defect.judge and defect.said in what]
        own = [name for name in own if not is_fixed(DEFECTS[name].fixed, self.version)]
        return own + [name for name in suspected(self.version, judge, what, story) if name not in DEFECTS]

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        self._depths = dict.fromkeys(self._depths, 1 + bool(shape.options["asynchronous"]))
        self._met = Counter()
        super().start(shape)

    def _half(self, shape: EngineShape, port: Port) -> NixlHalf:
        half = NixlHalf(shape, port, self._met, [name for name in self._mended if name not in DEFECTS])
        for name in self._mended:
            if name in DEFECTS:
                DEFECTS[name].mend(half, self)
        return half

    def keeps(self, engine: str, request: str) -> bool:
        """True if the first engine still holds the blocks of a request for the second one."""
        half = self._halves["prefill"]
        assert isinstance(half, NixlHalf)
        return half.keeps(engine, request)

    def counts(self) -> Mapping[str, int]:
        """What became of messages and of blocks."""
        return self._network.counts + self._met
