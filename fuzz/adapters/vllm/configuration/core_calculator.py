"""The calculator of a core with vLLM's KV-cache API, in this process."""

from collections.abc import Mapping
from typing import Any

from .....model import ops
from ....findings.ops_json import shape_from_json
from ....targets.configuration_question import outcome_as_json
from ..binding import Binding
from ..style import VllmStyleTarget
from .calculator import answer
from .specs_today import is_planned


class CoreCalculator:
    """The `Calculator` for a binding of this process."""

    def __init__(self, name: str, binding: Binding) -> None:
        self.name = name
        self.version = binding.version
        self._names = binding.names
        self._target = VllmStyleTarget(name, binding)

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """The answer; see `calculator.answer`. What is about a whole core of some shape is asked of the target."""
        if op not in ("build", "cold"):
            return answer(self._names, op, inputs)
        outcome, shown = self._target.start(shape_from_json(inputs["shape"]))
        if isinstance(outcome, ops.Failed):
            return {"raises": outcome.error}
        if op == "build" or shown is None:
            return {"output": None}
        prompt: Any = inputs["prompt"]
        self._target.step(ops.Submit("r", tuple(prompt)))
        found, _ = self._target.step(ops.Lookup("r"))
        output = {"free": shown.num_free, "usage": shown.usage, "found": outcome_as_json(found)}
        common = {"common": outcome_as_json(self._target.answer(ops.CommonPrefix("r")))}
        return {"output": output | (common if is_planned(self._names) else {})}

    def close(self) -> None:
        """Nothing to do."""
