"""Shrinks the question of a finding for as long as target and model disagree in the same way.

Every pass proposes smaller inputs. They are plain JSON, so the passes know only what all questions have in common:
layers, workers, specs and numbers.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ..traces.reducer import Reduced, Reducer, SearchLimits
from .check import Judge
from .draw import configuration_of
from .findings import LOCKSTEP, LOST, MODELS, ConfigurationFinding

Inputs: TypeAlias = dict[str, Any]
Pass: TypeAlias = Callable[[Inputs], Iterator[Inputs]]
SmallerFinding: TypeAlias = Reduced[ConfigurationFinding]
ASKED = ("steps", "updates", "records", "sets", "hashes", "indices", "grown", "kv_cache_dtypes", "modes", "parents")
PARTS = ("tokens", "classes", "hashed", "arguments", "prompt", "items", "parts")
LISTS = ("layers", "worker", "groups", "draws", "max_model_lens", *ASKED, *PARTS)
NO_QUESTION = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError)
"""What a model may raise for inputs that do not fit the op."""
SIZES = ("block_size", "decode_context_parallel_size", "prefill_context_parallel_size")
"""Settings that are at least 1."""
KEPT_FIELDS = ("type", "block_size", "num_kv_heads", "head_size", "dtype", "shapes", "dtypes")
"""Fields that every spec needs; the others may be dropped."""


def shrink_finding(finding: ConfigurationFinding, judge: Judge, max_seconds: float = 30.0) -> SmallerFinding:
    """The same kind of finding on the smallest inputs that were found. Ctrl-C ends the search with the best so far."""
    return _QuestionReducer(finding, judge, SearchLimits(seconds=max_seconds)).run()


class _QuestionReducer(Reducer[Inputs, ConfigurationFinding]):
    """Asks each candidate; after every one that still fails, all passes begin anew."""

    def __init__(self, finding: ConfigurationFinding, judge: Judge, limits: SearchLimits) -> None:
        super().__init__(dict(finding.inputs), finding, limits)
        self._judge = judge

    def search(self) -> None:
        """Until no pass proposes anything that fails."""
        self.exhaust(lambda inputs: (smaller for simpler in PASSES for smaller in simpler(copy.deepcopy(inputs))))

    def shows(self, candidate: Inputs) -> tuple[Inputs, ConfigurationFinding] | None:
        """The inputs as the new finding has them."""
        try:
            again = ask_again(replace(self.finding, inputs=candidate), self._judge)
        except NO_QUESTION:
            return None
        if again is None or again.kind != self.finding.kind:
            return None
        return dict(again.inputs), replace(again, seed=self.finding.seed)


def ask_again(finding: ConfigurationFinding, judge: Judge) -> ConfigurationFinding | None:
    """What is found when the same question is asked again, None if nothing is."""
    if finding.oracle in (LOCKSTEP, LOST, MODELS):
        return judge.check_question(finding.op, finding.inputs)
    return judge.check_invariant(finding.oracle, configuration_of(finding.inputs))


def _fewer(items: list[Any]) -> Iterator[list[Any]]:
    """The list without a half, a quarter, ... a single item of it."""
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        size //= 2


def _fewer_workers(inputs: Inputs) -> Iterator[Inputs]:
    """Without a worker and its memory, or without some of its layers."""
    workers, memory = inputs.get("workers", []), inputs.get("available_memory")
    for index, worker in enumerate(workers):
        if isinstance(memory, list) and len(memory) == len(workers) > 1:
            fewer = {"workers": workers[:index] + workers[index + 1 :]}
            yield {**inputs, **fewer, "available_memory": memory[:index] + memory[index + 1 :]}
        for layers in _fewer(worker):
            yield {**inputs, "workers": [*workers[:index], layers, *workers[index + 1 :]]}


def _fewer_items(inputs: Inputs) -> Iterator[Inputs]:
    for name in LISTS:
        for items in _fewer(inputs.get(name, [])):
            yield {**inputs, name: items}
    if isinstance(inputs.get("specs"), list):  # of a merge
        for items in _fewer(inputs["specs"]):
            yield {**inputs, "specs": items}


def _fewer_specs(inputs: Inputs) -> Iterator[Inputs]:
    """Without specs that no layer has; then with one spec in the place of another."""
    specs = inputs.get("specs")
    if not isinstance(specs, dict):
        return
    used = {spec for layers in (inputs.get("layers", []), *inputs.get("workers", [])) for _, spec in layers}
    if used != set(specs):
        yield {**inputs, "specs": {name: spec for name, spec in specs.items() if name in used}}
    for old in specs:
        for new in specs:
            if old != new:
                yield _renamed(inputs, old, new)


def _renamed(inputs: Inputs, old: str, new: str) -> Inputs:
    def change(layers: list[list[str]]) -> list[list[str]]:
        return [[name, new if spec == old else spec] for name, spec in layers]

    changed = {**inputs, "specs": {name: spec for name, spec in inputs["specs"].items() if name != old}}
    if "layers" in inputs:
        changed["layers"] = change(inputs["layers"])
    if "workers" in inputs:
        changed["workers"] = [change(worker) for worker in inputs["workers"]]
    return changed


def _fewer_settings(inputs: Inputs) -> Iterator[Inputs]:
    """Without a setting or another option."""
    for name in inputs.get("vllm_config", {}):
        yield {**inputs, "vllm_config": {key: value for key, value in inputs["vllm_config"].items() if key != name}}
    if "shared_objects" in inputs:
        yield {name: value for name, value in inputs.items() if name != "shared_objects"}


def _fewer_fields(inputs: Inputs) -> Iterator[Inputs]:
    """Without a field of a spec that has a default."""
    for path, spec in _records(inputs, ()):
        for name in spec:
            if name not in KEPT_FIELDS:
                yield _replaced(inputs, path, {key: value for key, value in spec.items() if key != name})


def _records(value: object, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Every spec in the inputs, with the way to it."""
    if isinstance(value, dict):
        if "type" in value:
            yield path, value
        for name, part in value.items():
            yield from _records(part, (*path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _records(part, (*path, index))


def _smaller_numbers(inputs: Inputs) -> Iterator[Inputs]:
    """With a number nearer to zero: simple ones first, then steps that a search by halves takes."""
    specs = {path for path, _ in _records(inputs, ())}
    for path, number in _numbers(inputs, ()):
        # With zero heads, tokens in a block or ranks, the question would be another one.
        a_size = path[-1] in SIZES or any(path[:depth] in specs for depth in range(len(path)))
        near = (1, 2, 4, 16) if a_size else (0, 1, 2, 4, 16)
        steps = [number - number // (1 << shift) for shift in range(1, 41) if number // (1 << shift)]
        for value in [*near, *steps, *([-number] if number < 0 else [number - 1] if number > 0 else [])]:
            if (abs(value) < abs(number) and (value or not a_size)) or number < 0 < value:
                yield _replaced(inputs, path, value)


def _numbers(value: object, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], int]]:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield path, value
    for name, part in (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from _numbers(part, (*path, name))


def _replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:
    """A copy with another value at the end of the path."""
    if not path:
        return new
    changed = copy.copy(value)
    changed[path[0]] = _replaced(value[path[0]], path[1:], new)
    return changed


PASSES: tuple[Pass, ...] = (
    _fewer_workers,
    _fewer_items,
    _fewer_specs,
    _fewer_settings,
    _fewer_fields,
    _smaller_numbers,
)
