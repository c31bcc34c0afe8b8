"""Asking a calculator the questions of configuration arithmetic about one set of layers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...model.config_json import NARROW
from ..targets.base import Calculator
from .parts import Spec


class RefusedError(Exception):
    """The target raised; `kind` is the exception's class."""

    def __init__(self, op: str, kind: str) -> None:
        super().__init__(f"{op}: {kind}")
        self.kind = kind


class Questions:
    """The layers of a model on its workers, and the settings that all questions about them share."""

    def __init__(
        self, calculator: Calculator, workers: Sequence[Sequence[tuple[str, Spec]]], settings: Mapping[str, object]
    ) -> None:
        self._calculator = calculator
        self._specs: dict[str, Spec] = {}
        self._keys: dict[str, str] = {}
        self.workers = [[[name, self._key(spec)] for name, spec in layers] for layers in workers]
        joined = {name: key for layers in self.workers for name, key in layers}
        self.layers = [[name, key] for name, key in joined.items()]
        self._settings = settings

    def _key(self, spec: Spec) -> str:
        text = json.dumps(spec, sort_keys=True)
        if text not in self._keys:
            self._keys[text] = f"s{len(self._keys)}"
            self._specs[self._keys[text]] = spec
        return self._keys[text]

    @property
    def specs(self) -> list[tuple[str, Spec]]:
        """The distinct specs, each with the first layer that has it."""
        first = {key: name for name, key in reversed(self.layers)}
        return [(first[key], spec) for key, spec in self._specs.items() if key in first]

    def ask(self, op: str, **inputs: object) -> Any:
        """The output of one question. RefusedError if the target raises."""
        answer = self._calculator.ask(op, inputs)
        if "raises" in answer:
            raise RefusedError(op, str(answer["raises"]))
        return answer["output"]

    def config(self, max_model_len: int, **more: object) -> dict[str, object]:
        """The `vllm_config` of a question."""
        return {**self._settings, "max_model_len": max_model_len, **more}

    def page(self, spec: Spec) -> int:
        """Bytes of one block of one layer (of all member layers, for a spec of several)."""
        return int(self.ask("page", spec=spec)["page_size_bytes"])

    def stored(self, spec: Spec) -> int:
        """Bytes of `page` that hold something: the page of the same spec without padding and alignment."""
        return self.page({name: value for name, value in spec.items() if name not in ("page_size_padded", "alignment")})

    def groups(self, max_model_len: int) -> list[tuple[list[str], Spec]]:
        """Layer names and spec of each group of the whole model."""
        output = self.ask("groups", specs=self._specs, layers=self.layers, vllm_config=self.config(max_model_len))
        return [(group["layers"], _group_spec(group, output["specs"])) for group in output["groups"]]

    def request_blocks(self, spec: Spec, max_model_len: int) -> int:
        """The most blocks one request of this length holds in a group."""
        return self.request_blocks_at(spec, [max_model_len])[0]

    def request_blocks_at(self, spec: Spec, lengths: Sequence[int]) -> list[int]:
        """The same for each of these lengths, of which there is at least one."""
        config = self.config(max(lengths))
        most = self.ask("max_memory", spec=spec, vllm_config=config, max_model_lens=list(lengths))
        page = self.page(spec)
        return [-(-int(memory) // page) for memory in most]

    def admission_cap(self, spec: Spec, max_model_len: int) -> int | None:
        """The cap in blocks, of specs that have one."""
        if spec["type"] not in NARROW:
            return None
        draw = [self._settings["max_num_batched_tokens"], max_model_len]
        (cap,) = self.ask("admission_cap", spec=spec, draws=[draw])
        return int(cap)

    def block_sizes(self, specs: Sequence[Spec], max_model_len: int) -> tuple[int, int]:
        """Scheduler and hash block size, in tokens."""
        output = self.ask("resolve_block_sizes", groups=list(specs), vllm_config=self.config(max_model_len))
        return int(output[0]), int(output[1])

    def configs(self, memory: Sequence[int], max_model_len: int, **more: object) -> dict[str, Any]:
        """The configuration of all workers with these bytes each."""
        config = self.config(max_model_len, **more)
        output: dict[str, Any] = self.ask(
            "configs", specs=self._specs, workers=self.workers, available_memory=list(memory), vllm_config=config
        )
        output["workers"] = _resolved(output["workers"])
        return output

    def longest(self, memory: Sequence[int], limit: int, **more: object) -> int:
        """The greatest length up to `limit` that fits every worker; 0 if not even one token does."""
        try:
            return int(self.configs(memory, limit, original_max_model_len=-1, **more)["max_model_len"])
        except RefusedError as error:
            if error.kind != "ValueError":
                raise
            return 0

    def num_blocks(self, memory: int, block_bytes: int, max_model_len: int) -> int:
        """Block ids that so many bytes hold, each of `block_bytes`; the override if there is one."""
        config = self.config(max_model_len)
        (blocks,) = self.ask("num_blocks", draws=[[1, memory, block_bytes]], vllm_config=config)
        return int(blocks)

    def concurrency(self, num_blocks: int, max_model_len: int) -> float:
        """Requests of this length that so many blocks hold at once."""
        config = self.config(max_model_len)
        return float(
            self.ask(
                "max_concurrency", specs=self._specs, layers=self.layers, vllm_config=config, num_blocks=num_blocks
            )
        )


def _group_spec(group: Mapping[str, Any], specs: Sequence[Spec]) -> Spec:
    """The spec of a group of an answer, as a question wants it."""
    if "spec" in group:
        return dict(specs[group["spec"]])
    names = group.get("member_names", group["layers"])
    members = [[name, specs[index]] for name, index in zip(names, group["members"], strict=True)]
    return {"type": "UniformTypeKVCacheSpecs", "block_size": group["block_size"], "kv_cache_specs": members}


def _resolved(workers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [workers[worker["same_as"]] if "same_as" in worker else worker for worker in workers]
