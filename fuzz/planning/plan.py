"""How much fits: from the layers of a model and an amount of memory to groups, blocks, tokens and what is wasted.

Every figure of the arithmetic comes from a calculator, so the same plan can be made by our core and by a real release.
Here is only which questions are asked, and sums of the answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite, lcm
from typing import Any

from ..kinds import LAYERS
from ..targets.base import Calculator
from .fields import ModelError
from .parts import Layers, Serving, Spec
from .questions import Questions, RefusedError


@dataclass(frozen=True)
class Deployment:
    """What the model is to run on."""

    memory_bytes: tuple[int, ...]
    """For the cache, one for each worker, or one for all."""
    pipeline_parallel: int = 1
    max_num_batched_tokens: int = 8192
    override_blocks: int | None = None
    hybrid: bool = True
    strict: bool = False


@dataclass(frozen=True)
class GroupPlan:
    """Layers that share one block table. Bytes are those of all pipeline stages together, one rank of each."""

    group: int
    layers: tuple[str, ...]
    spec: str
    """The spec's class; for several specs of one type, all their classes."""
    reach_tokens: int | None
    """The sliding window or the chunk."""
    block_size_tokens: int
    page_bytes: int
    """One block of one layer; of all layers of the group where their pages differ."""
    page_padding_bytes: int
    """Bytes of a page that hold nothing."""
    block_waste_bytes: int
    """Bytes of a block id held by this group that hold nothing: padding, and layers that larger groups have more."""
    admission_cap_blocks: int | None
    """The most blocks the scheduler reserves for a request; None where there is no such cap."""
    request_blocks: int
    """The most blocks a request of the planned length holds."""


@dataclass(frozen=True)
class WorkerPlan:
    """One worker."""

    worker: int
    pipeline_stage: int
    layers: int
    memory_bytes: int
    block_bytes: int
    """What one block id costs here."""
    own_blocks: int | None
    """Blocks that its memory holds; all workers get the least. None for a worker without layers."""


@dataclass(frozen=True)
class MemoryPlan:
    """A model on a deployment."""

    model: str
    family: str
    target: str
    strict: bool
    max_model_len_tokens: int
    """The length that was planned for: as given, or the longest that fits (1 if not even that does)."""
    model_longest_tokens: int
    """The length the model was made for."""
    max_num_batched_tokens: int
    scheduler_block_size_tokens: int
    hash_block_size_tokens: int
    prefix_caching: bool
    fits: bool
    """On paper: what the check of the target says."""
    fits_with_null_block: bool
    """Also with the null block counted, which nobody can use (C-17)."""
    longest_fit_tokens: int
    """The greatest length that fits, up to `limit_tokens`, on paper."""
    longest_usable_tokens: int
    """The same with the null block counted."""
    limit_tokens: int
    num_blocks: int
    """In the pool, the null block counted."""
    block_bytes: int
    """What one block id costs, one rank of all stages together."""
    request_blocks: int
    """The most blocks a request of the planned length holds over all groups."""
    concurrency: float | None
    """Requests of the planned length that the pool holds at once; None if they need nothing."""
    capacity_tokens: int | None
    """The same in tokens."""
    request_waste_bytes: int
    """Of the blocks of a full-length request, the bytes that hold nothing."""
    request_waste_percent: float
    groups: tuple[GroupPlan, ...]
    workers: tuple[WorkerPlan, ...]
    warnings: tuple[str, ...]
    configs: Mapping[str, Any] = field(repr=False)
    """The target's whole configuration (the answer to `configs`), for an allocation."""

    @property
    def ok(self) -> bool:
        """True if this can be deployed: it fits, and if `strict`, with the null block counted."""
        return self.fits_with_null_block if self.strict else self.fits

    def as_json(self) -> dict[str, object]:
        """The plan for machines: all fields but the configuration itself, and `ok`."""
        document = asdict(self)
        del document["configs"]
        return {"ok": self.ok, **document}


LARGEST_PAGE = 2**40
"""Bytes of a block of one layer; more is taken for a typing error."""
SURELY_ENOUGH = 2**40
"""More blocks than any request needs. With these, the target tells the configuration whatever the memory is."""


def make_plan(
    calculator: Calculator, name: str, family: str, layers: Layers, serving: Serving, deployment: Deployment
) -> MemoryPlan:
    """The plan, also for layers that do not fit. ModelError if they cannot be served at all."""
    try:
        layers, questions = questions_of(calculator, layers, serving, deployment)
        return _plan(calculator.name, name, family, questions, layers, serving, deployment)
    except RefusedError as error:
        raise ModelError(f"{calculator.name} refuses these layers ({error})") from None


def questions_of(
    calculator: Calculator, layers: Layers, serving: Serving, deployment: Deployment
) -> tuple[Layers, Questions]:
    """The layers with their final block sizes, and what asks about them on all workers. ModelError as `make_plan`."""
    layers = _settled(calculator, layers, serving)
    stages = pipeline_stages(layers, deployment.pipeline_parallel)
    workers = [stage for stage in stages for _ in range(serving.tensor_parallel)]
    return layers, Questions(calculator, workers, _settings(layers, serving, deployment))


def pipeline_stages(layers: Layers, count: int) -> list[list[tuple[str, Spec]]]:
    """The caches of each pipeline stage: contiguous runs of decoder layers, as even as can be.

    What is left over goes, one each, to the stages before the last, from the back: the last one has the output layer
    to carry (vLLM's rule).
    """
    total = len(layers.stack)
    if count > total:
        raise ModelError(f"{count} pipeline stages for {total} layers: each stage needs at least one")
    sizes = [total // count] * count
    for i in range(total % count):
        sizes[count - 2 - i] += 1
    starts = [sum(sizes[:i]) for i in range(count)]
    return [
        [cache for caches in layers.stack[start : start + size] for cache in caches]
        for start, size in zip(starts, sizes, strict=True)
    ]


def _settled(calculator: Calculator, layers: Layers, serving: Serving) -> Layers:
    """The layers with their final block sizes; ModelError for a layer whose spec the target refuses."""
    caches = [cache for layer in layers.stack for cache in layer]
    if not caches:
        raise ModelError("no layer of this model keeps a cache: there is nothing to plan")
    asked = Questions(calculator, [caches], {})
    for name, spec in asked.specs:
        try:
            page = asked.page(spec)
        except RefusedError as error:
            raise ModelError(f"layer {name!r}: {calculator.name} refuses its spec ({error.kind}): {spec}") from None
        if page > LARGEST_PAGE:
            raise ModelError(f"layer {name!r}: a block takes {page:,} bytes; check heads, sizes and block size")
    return settle_block_size(layers, serving, asked.page)


def _settings(layers: Layers, serving: Serving, deployment: Deployment) -> dict[str, object]:
    """The settings that all questions share. Those left out have their defaults."""
    settings: dict[str, object] = {
        "max_num_batched_tokens": deployment.max_num_batched_tokens,
        "block_size": layers.block_size,
        "enable_prefix_caching": layers.prefix_caching,
        "max_num_encoder_input_tokens": layers.encoder_tokens,
        "mamba_cache_mode": serving.mamba_cache_mode,
    }
    if not deployment.hybrid:
        settings["disable_hybrid_kv_cache_manager"] = True
    if deployment.override_blocks is not None:
        settings["num_gpu_blocks_override"] = deployment.override_blocks
    return settings


def _plan(
    target: str,
    name: str,
    family: str,
    questions: Questions,
    layers: Layers,
    serving: Serving,
    deployment: Deployment,
) -> MemoryPlan:
    """Ask the questions, and add up the answers."""
    memory = _memory_of(questions.workers, deployment)
    limit = max(serving.max_model_len or 0, layers.longest)
    specs = _groups(questions, limit, deployment)
    whole = questions.configs(memory, limit, num_gpu_blocks_override=SURELY_ENOUGH)["workers"]
    block_bytes = [sum(size for size, _ in worker["tensors"]) // SURELY_ENOUGH for worker in whole]
    own = [questions.num_blocks(m, b, limit) if b else None for m, b in zip(memory, block_bytes, strict=True)]
    num_blocks = min(blocks for blocks in own if blocks is not None)
    longest = questions.longest(memory, limit)
    usable = longest
    if sum(questions.request_blocks(spec, longest) for _, spec in specs) >= num_blocks:
        # Such a request would need the null block, too: the target does not count it (C-17).
        usable = questions.longest(memory, limit, num_gpu_blocks_override=max(num_blocks - 1, 0))
    length = serving.max_model_len or (usable if deployment.strict else longest) or 1
    configs = _configs_that_fit(questions, memory, length)
    rank = sum(block_bytes[:: serving.tensor_parallel])
    groups = tuple(_group(questions, number, group, rank, length) for number, group in enumerate(specs))
    request = sum(group.request_blocks for group in groups)
    wasted = sum(group.request_blocks * group.block_waste_bytes for group in groups)
    concurrency = questions.concurrency(num_blocks, length)
    scheduler, hashed = questions.block_sizes([spec for _, spec in specs], length)
    plan = MemoryPlan(
        model=name,
        family=family,
        target=target,
        strict=deployment.strict,
        max_model_len_tokens=length,
        model_longest_tokens=layers.longest,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        scheduler_block_size_tokens=scheduler,
        hash_block_size_tokens=hashed,
        prefix_caching=layers.prefix_caching,
        fits=configs is not None,
        fits_with_null_block=configs is not None and request < num_blocks,
        longest_fit_tokens=longest,
        longest_usable_tokens=usable,
        limit_tokens=limit,
        num_blocks=num_blocks,
        block_bytes=rank,
        request_blocks=request,
        concurrency=concurrency if isfinite(concurrency) else None,
        capacity_tokens=int(concurrency * length) if isfinite(concurrency) else None,
        request_waste_bytes=wasted,
        request_waste_percent=round(100 * wasted / (request * rank), 2) if request else 0.0,
        groups=groups,
        workers=tuple(
            WorkerPlan(
                number, number // serving.tensor_parallel, len(caches), memory[number], block_bytes[number], blocks
            )
            for number, (caches, blocks) in enumerate(zip(questions.workers, own, strict=True))
        ),
        warnings=(),
        configs=configs or {},
    )
    return replace(plan, warnings=(*layers.notes, *_warnings(plan)))


def _memory_of(workers: Sequence[object], deployment: Deployment) -> list[int]:
    """Bytes for each worker."""
    memory = deployment.memory_bytes
    if len(memory) not in (1, len(workers)):
        raise ModelError(
            f"--memory names {len(memory)} workers, there are {len(workers)}; give one size, or one for each"
        )
    return list(memory) if len(memory) > 1 else [memory[0]] * len(workers)


def _groups(questions: Questions, length: int, deployment: Deployment) -> list[tuple[list[str], Spec]]:
    """Layer names and spec of each group. ModelError, in terms of the layers, if the target cannot group them."""
    try:
        return questions.groups(length)
    except RefusedError as error:
        sizes = " and ".join(f"{page:,}" for page in sorted({questions.page(spec) for _, spec in questions.specs}))
        if not deployment.hybrid:
            problem = "--no-hybrid: all layers must become one kind, and these cannot"
        elif error.kind == "NotImplementedError":
            problem = (
                f"pages of {sizes} bytes cannot be made equal: each must divide the largest; "
                "choose other block sizes, or pad the smaller ones (page_size_padded)"
            )
        else:
            problem = f"these layers (pages of {sizes} bytes) cannot be put into groups"
        raise ModelError(f"{problem} ({error.kind})") from None


def _configs_that_fit(questions: Questions, memory: Sequence[int], length: int) -> dict[str, Any] | None:
    """The configuration of all workers, or None if the target says that this length does not fit."""
    try:
        return questions.configs(memory, length)
    except RefusedError as error:
        if error.kind != "ValueError":
            raise
        return None


_REACHES = tuple(dict.fromkeys(layers.reach for layers in LAYERS.values() if layers.reach))


def _group(
    questions: Questions, number: int, group: tuple[list[str], Spec], block_bytes: int, length: int
) -> GroupPlan:
    """The figures of one group."""
    names, spec = group
    members = members_of(names, spec)
    page, stored = questions.page(spec), {id(member): questions.stored(member) for member in members}
    held = sum(stored[id(member)] for member in members)
    several = spec["type"] == "UniformTypeKVCacheSpecs"
    reach = {next((member[name] for name in _REACHES if member.get(name)), None) for member in members}
    return GroupPlan(
        group=number,
        layers=tuple(names),
        spec=" + ".join(sorted({str(member["type"]) for member in members})),
        reach_tokens=_count(reach.pop()) if len(reach) == 1 else None,
        block_size_tokens=_count(spec["block_size"]) or 0,
        page_bytes=page,
        page_padding_bytes=page - (held if several else stored[id(members[0])]),
        block_waste_bytes=block_bytes - held,
        admission_cap_blocks=questions.admission_cap(members[0], length),
        request_blocks=questions.request_blocks(spec, length),
    )


def members_of(names: Sequence[str], spec: Spec) -> list[Spec]:
    """The spec of each layer of a group."""
    members = spec.get("kv_cache_specs")
    return [member for _, member in members] if isinstance(members, list) else [spec] * len(names)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _warnings(plan: MemoryPlan) -> list[str]:
    """What is wrong with a plan and easily overlooked, a sentence each."""
    warnings = []
    length, longest = plan.max_model_len_tokens, plan.model_longest_tokens
    if length > longest:
        warnings.append(f"{length:,} tokens are more than the {longest:,} that the model was made for")
    if plan.fits and not plan.fits_with_null_block:
        warnings.append(
            f"a request of {length:,} tokens needs {plan.request_blocks:,} blocks and the pool has as many, but one is "
            f"the null block: it fits on paper and stalls before its end. {plan.longest_usable_tokens:,} tokens do fit "
            "(C-17; --strict makes this a failure)"
        )
    blocks = {worker.own_blocks for worker in plan.workers if worker.own_blocks is not None}
    if len(blocks) > 1:
        least = min((w for w in plan.workers if w.own_blocks is not None), key=lambda w: w.own_blocks or 0)
        warnings.append(
            f"worker {least.worker} holds the fewest blocks, {min(blocks):,} where others hold up to {max(blocks):,}; "
            "all get as few"
        )
    return warnings


LEAST_KERNEL_BLOCK = 16
"""Tokens in the smallest block of the attention kernels."""


def keeps_states(spec: Spec) -> bool:
    """True if layers of this spec keep states, which have one size whatever the length of the sequence."""
    return "shapes" in spec


def settle_block_size(layers: Layers, serving: Serving, page: Callable[[Spec], int]) -> Layers:
    """The layers with their final block sizes and the states padded. `page` tells the bytes of a block of a spec."""
    specs = [spec for caches in layers.stack for _, spec in caches]
    state = max((page(spec) for spec in specs if keeps_states(spec)), default=0)
    token = max((page({**spec, "block_size": 1}) for spec in specs if not keeps_states(spec)), default=0)
    length = serving.max_model_len or layers.longest
    if not state or layers.state_chunk is None:
        return layers
    size = attention_block_size(serving, state, token, layers.state_chunk) if token else serving.block_size
    padded = size * token

    def settled(spec: Spec) -> Spec:
        if not keeps_states(spec):
            return {**spec, "block_size": size}
        tokens = length if serving.mamba_cache_mode == "none" else size
        padding = {} if padded in (0, page(spec)) else {"page_size_padded": padded}
        return {**spec, "block_size": tokens, **padding}

    stack = tuple(tuple((name, settled(spec)) for name, spec in caches) for caches in layers.stack)
    return replace(layers, stack=stack, block_size=size)


def attention_block_size(serving: Serving, state_bytes: int, token_bytes: int, chunk: int) -> int:
    """Tokens in a block of attention whose page holds a state; `token_bytes` is what one token of a layer takes.

    >>> attention_block_size(Serving(block_size=16), 4_244_992, 4096, 256)
    1040
    >>> attention_block_size(Serving(block_size=16, mamba_cache_mode="all"), 4_244_992, 4096, 256)
    1280
    """
    step = max(LEAST_KERNEL_BLOCK, serving.block_size)
    if serving.mamba_cache_mode == "all":
        step = lcm(step, chunk)
    return max(serving.block_size, step * -(-state_bytes // (step * token_bytes)))
