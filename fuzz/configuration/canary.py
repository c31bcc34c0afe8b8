"""The canary of `fuzz-config` (`runs.canary`): faults in right answers that its judges must see first."""

from collections.abc import Mapping
from functools import partial

from ..faults import Fault, Part, faults_in
from ..findings.oracle_names import LOCKSTEP
from ..opening.known_deviations import known_of
from ..runs.canary import Canary, check_plants
from ..targets.configuration_answers import answer
from .check import Judge, Oracle
from .draw import configuration_of
from .questions import Question

_SPEC = {"type": "FullAttentionSpec", "block_size": 16, "num_kv_heads": 2, "head_size": 8, "dtype": {"itemsize": 2}}
_CONFIGURATION = configuration_of(
    {
        "specs": {"s": _SPEC},
        "workers": [[["first", "s"], ["second", "s"]]],
        "vllm_config": {"max_model_len": 64},
        "available_memory": [1 << 16],
    }
)
_QUESTIONS = [Question("needed", _CONFIGURATION.about_layers(vllm_config=dict(_CONFIGURATION.vllm_config)))]
_PLANTED: Mapping[Oracle, tuple[str, ...]] = {
    "lockstep": ("need-a-block-short",),
    "invariants": ("tensor-a-byte-short", "tensor-off-by-a-page", "layer-dropped"),
}


class _RightCalculator:
    """Answers as the model of the target does, with its known deviations."""

    def __init__(self, name: str) -> None:
        self.name, known = name, known_of(name)
        self._rules = None if known is None else known.rules()

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        return {**(answer(op, inputs) if self._rules is None else self._rules.answer(op, inputs))}

    def close(self) -> None:
        """Nothing is open."""


def check_oracle(name: str, oracle: Oracle) -> Canary | None:
    """Plant faults for what judges a calculator of this name. BlindOracleError if one of them is not seen."""
    faults = faults_in(Part.CONFIGURATION)
    return check_plants(
        (judge, partial(_is_seen, faults[fault], name, judge))
        for judge, planted in _PLANTED.items()
        for fault in planted
        if oracle in (judge, "all")
    )


def _is_seen(fault: Fault, name: str, oracle: Oracle) -> bool:
    calculator = _RightCalculator(name)
    fault.plant(calculator)
    found = Judge(calculator, oracle=oracle).check(_CONFIGURATION, _QUESTIONS)
    return found is not None and found.oracle in ((LOCKSTEP,) if oracle == LOCKSTEP else fault.observables)
