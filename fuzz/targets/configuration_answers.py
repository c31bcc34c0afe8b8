"""What the rules of configuration arithmetic answer to questions, in the JSON format of the golden vectors.

A question is an operation and its inputs, an answer `{"output": …}` or `{"raises": name of the exception class}`. The
rules are a record, so a release that is known to deviate answers by the same questions with other entries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from ...model.attention import demand
from ...model.config.capacity import Rules
from ...model.config.layers import uniform_of
from ...model.config_json import (
    NOT_ATTENTION,
    Json,
    LayerGroup,
    Layers,
    Spec,
    SpecTable,
    WorkerConfig,
    plain,
    show_spec,
)
from .configuration_question import ConstructedQuestion, OwnRules, attempt
from .part_answers import PARTS
from .piece_answers import PIECES

RIGHT = Rules()
"""Every rule as the chapter wants it."""


def answer(op: str, inputs: Mapping[str, object], rules: Rules = RIGHT) -> dict[str, Json]:
    """The answer to a question. ValueError, TypeError, KeyError or AttributeError if the question is malformed."""
    known = {**QUESTIONS, **rules.questions} if isinstance(rules, OwnRules) else QUESTIONS
    if op not in known:
        raise ValueError(f"op: expected one of {', '.join(known)}, got {op!r}")
    work = known[op]
    return attempt(lambda: {"output": plain(work(rules, ConstructedQuestion(rules, inputs)))})


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


def page(rules: Rules, q: ConstructedQuestion) -> Json:
    """Bytes of a block, tokens stored in it, padding."""
    x = q.spec
    shown: dict[str, Json] = {"page_size_bytes": rules.page(x), "storage_block_size": x.block_size // x.compress_ratio}
    if x.type != Spec.UNIFORM:
        shown["page_size_padded"] = x.page_size_padded
    return shown if x.type in NOT_ATTENTION else shown | {"real_page_size_bytes": rules.real_page(x)}


def resize(rules: Rules, q: ConstructedQuestion) -> Json:
    """The page after a change of the block size."""
    x = rules.resize(q.spec, q.given.block_size)
    return {"block_size": x.block_size, "page_size_bytes": rules.page(x)}


def max_memory(rules: Rules, q: ConstructedQuestion) -> Json:
    """Bytes that a request of each length needs of one layer."""
    return [rules.memory(replace(q.config, max_model_len=length), q.spec) for length in q.given.max_model_lens]


def is_page_uniform(rules: Rules, layers: Layers) -> bool:
    """True if there is exactly one page size (specs-and-config.md §8)."""
    return len({rules.page(x) for x in layers.values()}) == 1


def uniformity(rules: Rules, q: ConstructedQuestion, asked: Sequence[str] = ("spec", "type", "page")) -> Json:
    """Whether the layers can be merged, are of one type, and have one page size."""
    checks: dict[str, Callable[[Layers], bool]] = {
        "spec": rules.is_spec_uniform,
        "type": rules.is_type_uniform,
        "page": partial(is_page_uniform, rules),
    }
    return {name: attempt(partial(checks[name], q.layers)) for name in asked}


def uniform_info(rules: Rules, q: ConstructedQuestion, with_pages: bool = True) -> Json:
    """The numbers of the uniform type of the layers, None if they have none."""
    if not rules.is_type_uniform(q.layers):
        return None
    x = uniform_of(q.layers)
    return {
        "block_size": x.block_size,
        "page_size_bytes": rules.page(x),
        **({"page_sizes": sorted(set(map(rules.page, x.members)))} if with_pages else {}),
        "num_layer_tuples": rules.num_layer_tuples(x),
        "max_pages": rules.blocks(q.config, x),
        "max_bytes": rules.memory(q.config, x),
    }


def needed(rules: Rules, q: ConstructedQuestion) -> Json:
    """Bytes of one request of the full length, by layers alone, and by groups with the null block; bytes of a block."""
    by_layers, groups = sum(rules.memory(q.config, x) for x in q.layers.values()), q.groups
    from_groups = rules.needed(q.config, groups)
    return {
        "sum_over_layers": by_layers,
        "from_groups": from_groups,
        "pool_bytes_per_block": rules.bytes_per_block(groups),
    }


def estimate(rules: Rules, q: ConstructedQuestion) -> Json:
    """The longest request that fits, by layers; the configured length is not touched."""
    longest = rules.longest(q.config, partial(rules.plain_needed, layers=q.layers), q.given.available_memory)
    return {"estimate": longest, "max_model_len_after": q.config.max_model_len}


def estimate_from_groups(rules: Rules, q: ConstructedQuestion) -> Json:
    """The longest request that fits, by groups."""
    return rules.longest(q.config, partial(rules.needed, groups=q.groups), q.given.available_memory)


def check_memory(rules: Rules, q: ConstructedQuestion) -> Json:
    """§12: nothing, or an error if a request of the full length does not fit; no layers, no check."""
    memory = q.given.available_memory
    if layers := q.layers:
        demand(memory > 0 and rules.plain_needed(q.config, layers) <= memory, "ValueError")
    return None


def blocks_and_tensors(worker: WorkerConfig) -> dict[str, Json]:
    """Blocks and tensors of a worker."""
    return {"num_blocks": worker.num_blocks, "tensors": worker.tensors}


def config_from_groups(
    rules: Rules, q: ConstructedQuestion, zeroed: Callable[[Sequence[LayerGroup]], bool] | None = None
) -> Json:
    """Blocks and tensors of a lone worker, and whether blocks are zeroed: usually where there are states."""
    worker = rules.worker_config(q.config, q.groups, q.given.available_memory)
    mamba = rules.has_mamba(worker.groups)
    zeroes = mamba if zeroed is None else zeroed(worker.groups)
    return blocks_and_tensors(worker) | {"has_mamba_layers": mamba, "needs_kv_cache_zeroing": zeroes}


def configs(rules: Rules, q: ConstructedQuestion) -> Json:
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


def max_concurrency(rules: Rules, q: ConstructedQuestion) -> Json:
    """Requests of the full length that fit at once; JSON has no number for infinity."""
    times = rules.concurrency(q.config, q.groups, q.given.num_blocks)
    return "inf" if times == inf else times


def num_blocks(rules: Rules, q: ConstructedQuestion) -> Json:
    """Blocks of each of so many layers that share so much memory evenly."""
    return [rules.num_blocks(q.config, memory, size * layers) for layers, memory, size in q.given.draws]


QUESTIONS: Mapping[str, Callable[[Rules, ConstructedQuestion], Json]] = {
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
    "estimate_from_groups": estimate_from_groups,
    "check_memory": check_memory,
    "config_from_groups": config_from_groups,
    "configs": configs,
    "max_concurrency": max_concurrency,
    "num_blocks": num_blocks,
    "approximate_gcd": lambda rules, q: [rules.depth(*draw) for draw in q.given.draws],
    **PIECES,
    **PARTS,
}
