"""Answers questions about the arithmetic of configurations, in the JSON format of the golden vectors.

A question is an operation and its inputs, an answer `{"output": …}` or `{"raises": name of the exception class}`. The
rules are those of `layers`, `grouping` and `capacity`, three parts of one class, so that a release that is known to
deviate can be modelled by a subclass.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import TypeAlias, TypeVar

from .attention import CoreError
from .capacity import CapacityRules, WorkerConfig
from .grouping import LayerGroup
from .layers import NOT_ATTENTION, Config, Kind, Layer, Layers

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
T = TypeVar("T")


class Rules(CapacityRules):
    """All rules of configuration arithmetic (specs-and-config.md)."""

    def answer(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The answer to a question. ValueError, TypeError, KeyError or AttributeError if the question is malformed."""
        if op not in QUESTIONS:
            raise ValueError(f"op: expected one of {', '.join(QUESTIONS)}, got {op!r}")
        return attempt(lambda: {"output": plain(QUESTIONS[op](self, Question(self, inputs)))})


def attempt(work: Callable[[], T]) -> T | dict[str, Json]:
    """What the call returns, or `{"raises": ...}` with the name of its error."""
    try:
        return work()
    except CoreError as error:
        return {"raises": str(error)}


def record(kind: type[T], values: Mapping[str, object]) -> T:
    """A record with these fields; TypeError names one that it does not have."""
    return kind(**values)


class Question:
    """The inputs of a question as objects. Specs are constructed when they are used."""

    def __init__(self, rules: Rules, inputs: Mapping[str, object]) -> None:
        self.rules, self.given = rules, SimpleNamespace(**{"vllm_config": {}, **inputs})
        self.config = record(Config, self.given.vllm_config)

    @property
    def spec(self) -> Layer:
        """The one spec asked about."""
        return self.read(self.given.spec)

    @property
    def layers(self) -> Layers:
        """The layers of the model."""
        return self.named(self.given.layers)

    @property
    def groups(self) -> list[LayerGroup]:
        """The groups of the model."""
        return self.rules.groups(self.config, self.layers)

    def named(self, names: Sequence[tuple[str, str]]) -> Layers:
        """Layers by name, each with its spec from the table."""
        return {name: self.read(self.given.specs[key]) for name, key in names}

    def read(self, raw: Mapping[str, object]) -> Layer:
        """A spec from its JSON."""
        return self.rules.construct(record(Layer, {name: self.field(name, value) for name, value in raw.items()}))

    def field(self, name: str, value: object) -> object:
        """A field of a spec: arrays become tuples, a dtype its size."""
        match name, value:
            case "type", str():
                return Kind(value)
            case "kv_cache_specs", list():
                return tuple((member, self.read(raw)) for member, raw in value)
            case _, {"itemsize": size}:
                return size
            case _, list():
                return tuple(self.field("", element) for element in value)
        return value


def plain(answer: Json) -> Json:
    """The value with every tuple as a list."""
    if isinstance(answer, dict):
        return {name: plain(value) for name, value in answer.items()}
    return [plain(element) for element in answer] if isinstance(answer, list | tuple) else answer


def show_spec(x: Layer) -> dict[str, Json]:
    """JSON of a spec, without fields at their default."""
    odd: dict[str, Json] = {
        "type": x.type.value,
        "dtype": {"itemsize": x.dtype},
        "dtypes": [{"itemsize": size} for size in x.dtypes],
        "kv_cache_specs": [[name, show_spec(member)] for name, member in x.kv_cache_specs],
    }
    shown = replace(x, head_size_v=None) if x.head_size_v == x.head_size else x
    changed = [field.name for field in fields(x) if getattr(shown, field.name) != field.default]
    return {name: odd.get(name, getattr(x, name)) for name in changed}


class SpecTable:
    """The specs of an answer, numbered by first use, and the groups that refer to them."""

    def __init__(self) -> None:
        self.specs: list[Json] = []

    def number(self, x: Layer) -> int:
        """The number of a spec."""
        if show_spec(x) not in self.specs:
            self.specs.append(show_spec(x))
        return self.specs.index(show_spec(x))

    def group(self, group: LayerGroup) -> dict[str, Json]:
        """Names and spec, or the members of a uniform type, in the order of the names where they agree."""
        shown: dict[str, Json] = {"layers": group.names} | ({"eagle": True} if group.eagle else {})
        if group.spec.type != Kind.UNIFORM:
            return shown | {"spec": self.number(group.spec)}
        members = dict(group.spec.kv_cache_specs)
        names = group.names if set(group.names) == set(members) else tuple(members)
        shown |= {"block_size": group.spec.block_size, "members": [self.number(members[name]) for name in names]}
        return shown if names == group.names else shown | {"member_names": names}

    def groups(self, groups: Sequence[LayerGroup]) -> list[Json]:
        """All groups in order."""
        return [self.group(group) for group in groups]


def show_groups(groups: Sequence[LayerGroup]) -> Json:
    """Groups and their specs."""
    table = SpecTable()
    return {"groups": table.groups(groups), "specs": table.specs}


def show_layers(rules: Rules, layers: Layers) -> Json:
    """Layers, their specs, and the page of each spec."""
    table = SpecTable()
    pages = {table.number(x): rules.page(x) for x in layers.values()}
    numbers = [(name, table.number(x)) for name, x in layers.items()]
    return {"specs": table.specs, "page_sizes": list(pages.values()), "layers": numbers}


def page(rules: Rules, q: Question) -> Json:
    """Bytes of a block, tokens stored in it, padding."""
    x = q.spec
    shown: dict[str, Json] = {"page_size_bytes": rules.page(x), "storage_block_size": x.block_size // x.compress_ratio}
    if x.type != Kind.UNIFORM:
        shown["page_size_padded"] = x.page_size_padded
    return shown if x.type in NOT_ATTENTION else shown | {"real_page_size_bytes": rules.real_page(x)}


def resize(rules: Rules, q: Question) -> Json:
    """The page after a change of the block size."""
    x = rules.resize(q.spec, q.given.block_size)
    return {"block_size": x.block_size, "page_size_bytes": rules.page(x)}


def max_memory(rules: Rules, q: Question) -> Json:
    """Bytes that a request of each length needs of one layer."""
    return [rules.memory(replace(q.config, max_model_len=length), q.spec) for length in q.given.max_model_lens]


def uniformity(rules: Rules, q: Question) -> Json:
    """Whether the layers can be merged, are of one type, and have one page size."""
    checks = {"spec": rules.is_spec_uniform, "type": rules.is_type_uniform, "page": rules.is_page_uniform}
    return {name: attempt(partial(check, q.layers)) for name, check in checks.items()}


def uniform_info(rules: Rules, q: Question) -> Json:
    """The numbers of the uniform type of the layers, None if they have none."""
    if (x := rules.uniform(q.layers)) is None:
        return None
    return {
        "block_size": x.block_size,
        "page_size_bytes": rules.page(x),
        "page_sizes": sorted(set(map(rules.page, x.members))),
        "num_layer_tuples": rules.num_layer_tuples(x),
        "max_pages": rules.blocks(q.config, x),
        "max_bytes": rules.memory(q.config, x),
    }


def needed(rules: Rules, q: Question) -> Json:
    """Bytes of one request of the full length, by layers and by groups; bytes of a block."""
    by_layers, groups = rules.plain_sum(q.config, q.layers), q.groups
    needed = rules.needed(q.config, groups)
    bytes_per_block = rules.bytes_per_block(groups)
    return {"sum_over_layers": by_layers, "from_groups": needed, "pool_bytes_per_block": bytes_per_block}


def estimate(rules: Rules, q: Question) -> Json:
    """The longest request that fits, by layers; the configured length is not touched."""
    need = partial(rules.plain_sum, layers=q.layers)
    longest = rules.longest(q.config, need, q.given.available_memory)
    return {"estimate": longest, "max_model_len_after": q.config.max_model_len}


def check_memory(rules: Rules, q: Question) -> Json:
    """§12: nothing, or an error if a request of the full length does not fit; no layers, no check."""
    if layers := q.layers:
        rules.check(q.given.available_memory, partial(rules.plain_sum, q.config, layers))
    return None


def blocks_and_tensors(worker: WorkerConfig) -> dict[str, Json]:
    """Blocks and tensors of a worker."""
    return {"num_blocks": worker.num_blocks, "tensors": worker.tensors}


def config_from_groups(rules: Rules, q: Question) -> Json:
    """Blocks and tensors of a lone worker, and whether blocks are zeroed."""
    worker = rules.worker_config(q.config, q.groups, q.given.available_memory)
    mamba = rules.has_mamba(worker.groups)
    return blocks_and_tensors(worker) | {"has_mamba_layers": mamba, "needs_kv_cache_zeroing": mamba}


def configs(rules: Rules, q: Question) -> Json:
    """The configurations of all workers and of the scheduler, and the length that auto-fit found."""
    layers = [q.named(worker) for worker in q.given.workers]
    config, workers = rules.configs(q.config, layers, q.given.available_memory)
    table, shown = SpecTable(), list[Json]()
    for worker in workers:
        told = blocks_and_tensors(worker) | {"groups": table.groups(worker.groups)}
        shown.append({"same_as": shown.index(told)} if told in shown else told)
    whole = rules.scheduler_config(workers)
    scheduler: Json = {"num_blocks": whole.num_blocks, "groups": table.groups(whole.groups)}
    return {"workers": shown, "max_model_len": config.max_model_len, "scheduler": scheduler, "specs": table.specs}


def max_concurrency(rules: Rules, q: Question) -> Json:
    """Requests of the full length that fit at once; JSON has no number for infinity."""
    times = rules.concurrency(q.config, q.groups, q.given.num_blocks)
    return "inf" if times == inf else times


QUESTIONS: Mapping[str, Callable[[Rules, Question], Json]] = {
    "page": page,
    "resize": resize,
    "max_memory": max_memory,
    "admission_cap": lambda rules, q: [rules.cap(q.spec, *draw) for draw in q.given.draws],
    "merge": lambda rules, q: show_spec(rules.merge([q.read(raw) for raw in q.given.specs])),
    "uniformity": uniformity,
    "uniform_info": uniform_info,
    "resolve_block_sizes": lambda rules, q: rules.block_sizes(q.config, [q.read(raw) for raw in q.given.groups]),
    "unify_page_size": lambda rules, q: show_layers(rules, rules.unify_page_size(q.layers)),
    "unify_hybrid": lambda rules, q: show_layers(rules, rules.unify_hybrid(q.layers)),
    "groups": lambda rules, q: show_groups(q.groups),
    "project": lambda rules, q: show_groups(rules.project(q.groups, q.given.worker)),
    "needed": needed,
    "estimate": estimate,
    "estimate_from_groups": lambda rules, q: rules.longest_of(q.config, q.groups, q.given.available_memory),
    "check_memory": check_memory,
    "config_from_groups": config_from_groups,
    "configs": configs,
    "max_concurrency": max_concurrency,
    "num_blocks": lambda rules, q: [rules.num_blocks(q.config, *draw) for draw in q.given.draws],
    "approximate_gcd": lambda rules, q: [rules.approximate_gcd(*draw) for draw in q.given.draws],
}
