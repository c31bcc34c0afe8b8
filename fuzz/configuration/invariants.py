"""What must hold of a calculator's answers, without any others to compare them with (specs-and-config.md §15).

Each invariant asks what it needs and yields a sentence for every way in which the answers break it. A question that
ends in an exception shows nothing, and what cannot be seen in answers is not judged.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ...model.config_json import FULL
from ...model.config_json import Spec as SpecName
from ..kinds import STATE_SPECS
from ..kinds.style import Spec
from .draw import Ask, Configuration, allocated

RECORDED = ("sliding_window", "attention_chunk_size")
"""What layers of full attention only record, so that some cores put them into one group."""
Invariant: TypeAlias = Callable[[Configuration, Ask], Iterator[str]]


def maximal_blocks(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I1: the pool has as many blocks as fit, and its tensors are exactly these blocks."""
    settings, memory = dict(configuration.vllm_config), configuration.one_memory
    about = configuration.about_layers(vllm_config=settings)
    made = ask("config_from_groups", {**about, "available_memory": memory}).get("output")
    needed = ask("needed", about).get("output")
    if settings.get("num_gpu_blocks_override") is not None or not made or not needed:
        return
    blocks, cost = made["num_blocks"], needed["pool_bytes_per_block"]
    if not cost:
        return
    if (size := allocated(made["tensors"])) != blocks * cost:
        yield f"tensors of {size} bytes in all for {blocks} blocks of {cost} bytes"
    if blocks != max(0, memory // cost):
        yield f"{blocks} blocks of {cost} bytes in {memory} bytes"


def equal_workers(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I2: all workers have the same number of blocks, tensors of so many pages, and no more than their memory."""
    answer = ask("configs", configuration.about_workers()).get("output")
    if not answer:
        return
    workers = _workers(answer)
    if len({worker["num_blocks"] for worker in workers}) > 1:
        yield f"numbers of blocks differ: {[worker['num_blocks'] for worker in workers]}"
    overridden = configuration.vllm_config.get("num_gpu_blocks_override") is not None
    for worker, memory in zip(workers, configuration.available_memory, strict=False):
        pages = _pages_of_layers(worker, answer["specs"], ask)
        for size, names, *placed in worker["tensors"]:
            if not placed and any(pages.get(name) not in (None, size / max(1, worker["num_blocks"])) for name in names):
                yield f"a tensor of {size} bytes for {worker['num_blocks']} blocks of {names}"
        used = allocated(worker["tensors"])
        if not overridden and used > max(memory, 0):
            yield f"{used} bytes of tensors in {memory} bytes"


def exact_unification(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I3: one page size for all, no page smaller than it was, bytes per token kept, and nothing to do a second time."""
    about = {"specs": dict(configuration.specs), "layers": configuration.about_layers()["layers"]}
    answer = ask("unify_page_size", about).get("output")
    if not answer or not answer["layers"]:
        return
    if len(set(answer["page_sizes"])) > 1:
        yield f"pages of {sorted(set(answer['page_sizes']))} bytes are left"
    for (name, index), (_, old) in zip(answer["layers"], configuration.layers, strict=True):
        before, after = configuration.specs[old], answer["specs"][index]
        page = ask("page", {"spec": before}).get("output")
        if page and answer["page_sizes"][index] < page["page_size_bytes"]:
            yield f"{name} had pages of {page['page_size_bytes']} bytes, has {answer['page_sizes'][index]}"
        if page and "page_size_padded" not in after and "alignment" not in after:
            was, now = page["page_size_bytes"], answer["page_sizes"][index]
            if was * after["block_size"] != now * _number(before, "block_size"):
                yield f"{name} had {was} bytes for {before['block_size']} tokens, has {now} for {after['block_size']}"
    specs = {f"u{index}": spec for index, spec in enumerate(answer["specs"])}
    layers = [[name, f"u{index}"] for name, index in answer["layers"]]
    again = ask("unify_page_size", {"specs": specs, "layers": layers}).get("output")
    if again != answer:
        yield f"a second time gives {again}"


def partition(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I4: each layer is in one group, in order among those of its page size, and in one tensor of each owner. Where
    specs that differ share a group, the order is that of each."""
    answer = ask("groups", configuration.about_layers(vllm_config=dict(configuration.vllm_config))).get("output")
    places = {name: place for place, (name, _) in enumerate(configuration.layers)}
    specs = dict(configuration.layers) if "kv_cache_layout" in configuration.vllm_config else {}
    if answer:
        yield from _once("groups", [group["layers"] for group in answer["groups"]], places)
        for group in answer["groups"]:
            by_page: dict[object, list[int]] = {}
            for name, page in _pages_of_group(group, answer["specs"], ask).items():
                by_page.setdefault((page, specs.get(name)), []).append(places.get(name, -1))
            if any(order != sorted(order) for order in by_page.values()):
                yield f"a group has its layers out of order: {group['layers']}"
    answer = ask("configs", configuration.about_workers()).get("output")
    for worker, owned in zip(_workers(answer) if answer else (), configuration.workers, strict=False):
        names = [name for name, _ in owned]
        yield from _once("a worker's groups", [group["layers"] for group in worker["groups"]], names)
        yield from _once("a worker's tensors", [tensor[1] for tensor in worker["tensors"]], names)


def balanced_groups(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I5: groups of one type differ by at most one layer, and there are as many as the largest group makes needed."""
    answer = ask("groups", configuration.about_layers(vllm_config=dict(configuration.vllm_config))).get("output")
    if not answer or len(answer["groups"]) < 2 or any("members" in group for group in answer["groups"]):
        return
    sizes: dict[str, list[int]] = {}
    recorded: dict[str, set[str]] = {}
    mergeable = "kv_cache_layout" in configuration.vllm_config
    for group in answer["groups"]:
        if answer["specs"][group["spec"]]["type"] != "HiddenStateCacheSpec":
            spec = answer["specs"][group["spec"]]
            merged = RECORDED if mergeable and SpecName(str(spec["type"])) in FULL else ()
            kind = repr({name: spec[name] for name in spec if name not in merged})
            sizes.setdefault(kind, []).append(len(group["layers"]))
            recorded.setdefault(kind, set()).update(str(spec[name]) for name in merged if spec.get(name) is not None)
    if any(len(several) > 1 for several in recorded.values()):
        return  # which of them share groups with layers that record nothing is the core's choice
    counts = [sum(of_type) for of_type in sizes.values()]
    if not counts:
        return
    depth = max(counts) if 2 * max(counts) < 3 * min(counts) else min(counts)
    for of_type in sizes.values():
        if len(of_type) != -(-sum(of_type) // depth) or max(of_type) - min(of_type) > 1:
            yield f"{sum(of_type)} layers of one type are in groups of {of_type}; at most {depth} go into one"
    if max(max(of_type) for of_type in sizes.values()) != depth:
        yield f"the largest group should have {depth} layers: {list(sizes.values())}"


def check_means_capacity(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I7: what is needed fits exactly if the pool holds a full-length request beside the null block; auto-fit finds the
    largest that does."""
    settings = dict(configuration.vllm_config)
    overridden = settings.pop("num_gpu_blocks_override", None) is not None
    fitted = settings.pop("original_max_model_len", None) == -1
    about, memory = configuration.about_layers(vllm_config=settings), configuration.one_memory
    needed = ask("needed", about).get("output")
    made = ask("config_from_groups", {**about, "available_memory": memory}).get("output")
    if not needed or not made or not needed["pool_bytes_per_block"]:
        return
    beside = needed.get("beside", 0)
    fits, blocks = needed["from_groups"] + beside <= memory, made["num_blocks"]
    concurrency = ask("max_concurrency", {**about, "num_blocks": blocks}).get("output")
    enough = blocks >= 1 and concurrency is not None and float(concurrency) >= 1
    if concurrency is not None and memory >= 0 and fits != enough:
        yield f"{needed['from_groups']} bytes needed, {memory} there, but {blocks} blocks serve {concurrency} requests"
    if fitted and not overridden and len(configuration.workers) == 1:
        answer = ask("configs", configuration.about_workers()).get("output")
        if answer:
            yield from _largest("auto-fit", answer["max_model_len"], "from_groups", about, memory - beside, ask)


def lengths_that_fit(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I8: the need never falls when the length grows, and an estimate is the largest length that fits."""
    about = configuration.about_layers(vllm_config=dict(configuration.vllm_config))
    memory = configuration.one_memory
    answer = ask("estimate", {**about, "available_memory": memory}).get("output")
    pages = [ask("page", {"spec": configuration.specs[name]}).get("output") for _, name in configuration.layers]
    if answer and all(pages):
        apart = "beside" in (ask("needed", about).get("output") or {"beside": 0})
        null_block = 0 if apart else sum(page["page_size_bytes"] for page in pages if page)
        yield from _largest("estimate", answer["estimate"], "sum_over_layers", about, memory - null_block, ask)
    length = ask("estimate_from_groups", {**about, "available_memory": memory}).get("output")
    if isinstance(length, int):
        yield from _largest("grouped estimate", length, "from_groups", about, memory, ask)
    for spec in list(configuration.specs.values())[:2]:
        lengths = sorted({1, 2, 16, 17, 100, _number(configuration.vllm_config, "max_model_len")})
        question = {"spec": spec, "vllm_config": dict(configuration.vllm_config), "max_model_lens": lengths}
        need = ask("max_memory", question).get("output")
        if need and need != sorted(need):
            yield f"the need falls when the length grows: {need} bytes for {lengths} tokens"


def merge_order_free(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I10: copies of a spec merge to the spec, and the order of specs plays no part."""
    specs = list(configuration.specs.values())[:3]
    if not specs:
        return
    for spec in specs:
        page, once = ask("page", {"spec": spec}), ask("merge", {"specs": [spec]}).get("output")
        twice = ask("merge", {"specs": [spec, spec]}).get("output")
        if once is not None and (twice is None or ("output" in page and ask("page", {"spec": twice}) != page)):
            yield f"two copies of {spec} merge to {twice}"
    there, back = ask("merge", {"specs": specs}), ask("merge", {"specs": specs[::-1]})
    if there.get("output") != back.get("output"):
        yield f"merging gives {there}, in the other order {back}"


def dividing_block_sizes(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I11: the hash block size divides every group's, each of which divides the scheduler's."""
    groups = list(configuration.specs.values())[:4]
    settings = dict(configuration.vllm_config)
    answer = ask("resolve_block_sizes", {"groups": groups, "vllm_config": settings}).get("output")
    if not answer or not groups:
        return
    scheduler, hashed = answer
    parallel = _number(settings, "decode_context_parallel_size", 1) * _number(
        settings, "prefill_context_parallel_size", 1
    )
    whole = "kv_cache_layout" in settings  # such cores have states on every rank as a whole
    sizes = [
        _number(spec, "block_size") * (1 if whole and spec["type"] in STATE_SPECS else parallel) for spec in groups
    ]
    if min(sizes) < 1:
        return  # a core may only refuse it later
    if any(scheduler % size for size in sizes):
        yield f"scheduler block size {scheduler} is no multiple of all of {sizes}"
    hashes_count = settings.get("enable_prefix_caching", True) or settings.get("kv_connector", False)
    mamba = any(spec["type"] in STATE_SPECS for spec in groups)
    if hashes_count and not mamba and (hashed < 1 or any(size % hashed for size in sizes)):
        yield f"hash block size {hashed} does not divide all of {sizes}"


def nothing_changed(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I13: an estimate leaves the length as it was, and one spec object for several layers does what copies do."""
    about = configuration.about_layers(vllm_config=dict(configuration.vllm_config))
    answer = ask("estimate", {**about, "available_memory": configuration.one_memory}).get("output")
    if answer and answer["max_model_len_after"] != configuration.vllm_config.get("max_model_len", 1024):
        yield f"max_model_len is {answer['max_model_len_after']} after an estimate"
    copies = {name: value for name, value in about.items() if name != "shared_objects"}
    if len(configuration.layers) > len(configuration.specs):
        one, many = ask("groups", {**copies, "shared_objects": True}), ask("groups", copies)
        if one != many:
            yield f"layers that share spec objects are grouped as {one}, others as {many}"


def places_apart(configuration: Configuration, ask: Ask) -> Iterator[str]:
    """I14: layers that are placed in one allocation lie inside it, fill it, and no two blocks share a byte; but for the
    same block of two groups, which only one of them has."""
    answer = ask("configs", configuration.about_workers()).get("output")
    whole = str(configuration.vllm_config.get("kv_cache_layout"))[:2] in ("LB", "BL")  # else a page is in parts
    if not answer or not whole:
        return
    for worker in _workers(answer):
        pages, blocks, tensors = _pages_of_layers(worker, answer["specs"], ask), worker["num_blocks"], worker["tensors"]
        if not all(len(tensor) > 2 for tensor in tensors) or not all(pages.get(name) for name in pages):
            continue
        if len(sizes := {tensor[0] for tensor in tensors}) > 1:
            yield f"allocations of {sorted(sizes)} bytes"
        largest = max((sum(pages[name] or 0 for name in group["layers"]) for group in worker["groups"]), default=0)
        if tensors and max(sizes) != largest * blocks:
            yield f"an allocation of {max(sizes)} bytes for {blocks} blocks of {largest} bytes"
        groups = {name: number for number, group in enumerate(worker["groups"]) for name in group["layers"]}
        spans = sorted(_spans(tensors, pages, [b for b in (0, 1, 2, blocks - 2, blocks - 1) if 0 <= b < blocks]))
        if spans and (spans[0][0] < 0 or max(end for _, end, *_ in spans) > max(sizes)):
            yield f"bytes outside of an allocation of {max(sizes)} bytes: {spans[0]}, {spans[-1]}"
        yield from _shared_bytes(spans, groups)


_Span: TypeAlias = tuple[int, int, int, str]
"""First byte, the one behind the last, block, layer."""


def _spans(tensors: Sequence[Sequence[Any]], pages: Mapping[str, int | None], blocks: Sequence[int]) -> list[_Span]:
    return [
        (begin := first + place * layer + block * step, begin + (pages.get(name) or 0), block, name)
        for _, names, layer, step, first in tensors
        for place, name in enumerate(names)
        for block in set(blocks)
    ]


def _shared_bytes(spans: Sequence[_Span], groups: Mapping[str, int]) -> Iterator[str]:
    open_spans: list[_Span] = []
    for span in spans:
        open_spans = [one for one in open_spans if one[1] > span[0]]
        for one in open_spans:
            if one[2] != span[2] or groups.get(one[3]) == groups.get(span[3]):
                yield f"block {one[2]} of {one[3]} and block {span[2]} of {span[3]} share bytes"
                return
        open_spans.append(span)


INVARIANTS: Mapping[str, Invariant] = {
    "I1": maximal_blocks,
    "I2": equal_workers,
    "I3": exact_unification,
    "I4": partition,
    "I5": balanced_groups,
    "I7": check_means_capacity,
    "I8": lengths_that_fit,
    "I10": merge_order_free,
    "I11": dividing_block_sizes,
    "I13": nothing_changed,
    "I14": places_apart,
}
"""The invariants by their name in the chapter."""


def _largest(what: str, length: int, need: str, about: Mapping[str, Any], memory: int, ask: Ask) -> Iterator[str]:
    """What is wrong with a length that should be the largest, up to the model's, whose need fits."""
    settings = about["vllm_config"]
    most = settings.get("max_model_len", 1024)

    def bytes_for(tokens: int) -> int | None:
        answer = ask("needed", {**about, "vllm_config": {**settings, "max_model_len": tokens}}).get("output")
        return answer[need] if answer else None

    if not 0 <= length <= max(most, 0):
        yield f"{what} {length} for a model of {most} tokens"
        return
    if length > 0 and (bytes_ := bytes_for(length)) is not None and bytes_ > memory:
        yield f"{what} {length}, which needs {bytes_} bytes, in {memory}"
    if length < most and (bytes_ := bytes_for(length + 1)) is not None and bytes_ <= memory:
        yield f"{what} {length}, but {length + 1} tokens need {bytes_} bytes, and there are {memory}"


def _once(what: str, lists: Sequence[Sequence[str]], names: Sequence[str] | Mapping[str, int]) -> Iterator[str]:
    """A sentence unless the lists hold each name exactly once, and no other."""
    count = Counter(name for names_of_one in lists for name in names_of_one)
    if count != Counter(list(names)):
        wrong = sorted(name for name in {*count, *names} if count[name] != (name in names))
        yield f"{what} have these layers twice, wrongly or not at all: {wrong[:5]}"


def _workers(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The workers of an answer, references to an equal one followed."""
    workers: list[Mapping[str, Any]] = []
    for worker in answer["workers"]:
        workers.append(workers[worker["same_as"]] if "same_as" in worker else worker)
    return workers


def _pages_of_layers(worker: Mapping[str, Any], specs: Sequence[Spec], ask: Ask) -> dict[str, int | None]:
    pages: dict[str, int | None] = {}
    for group in worker["groups"]:
        pages |= _pages_of_group(group, specs, ask)
    return pages


def _pages_of_group(group: Mapping[str, Any], specs: Sequence[Spec], ask: Ask) -> dict[str, int | None]:
    """Bytes of a block of each layer of a group; None where that cannot be said."""

    def page(index: int) -> int | None:
        answer = ask("page", {"spec": specs[index]}).get("output")
        return answer["page_size_bytes"] if answer else None

    if "members" in group:
        members = dict(zip(group.get("member_names", group["layers"]), group["members"], strict=True))
    else:
        members = dict.fromkeys(group["layers"], group["spec"])
    return {name: page(members[name]) for name in group["layers"] if name in members}


def _number(record: Mapping[str, object], name: str, default: int = 1024) -> int:
    value = record.get(name, default)
    assert isinstance(value, int)
    return value
