"""Model configurations, drawn: layers with their specs, workers, memory and settings.

All choices come through the `Draw` interface, so that a seed, Hypothesis or bytes can make them. Swarm style: each
configuration uses a few features only, so that these meet often.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..kinds.style import Spec, Style, draw_style
from ..workload.draw import Draw
from .specs import draw_deepseek_v4, draw_specs, spelled_out

Answer: TypeAlias = Mapping[str, Any]
Ask: TypeAlias = Callable[[str, Mapping[str, object]], Answer]
"""Answers a question: op and inputs."""
Layers: TypeAlias = tuple[tuple[str, str], ...]
"""Layer names with the names of their specs, in order."""

LENGTHS = (1024, 1, 2, 17, 64, 100, 127, 4096, 8191, 16384, 131072, 1_000_003, 1 << 31)
SIZES = (3, 1, 2, 4, 6, 8, 12, 20, 40)
"""About how many layers a model has."""
SPELLED = "s0-spelled-out"
"""Name of a spec that is equal to `s0`."""


@dataclass(frozen=True)
class Configuration:
    """A model on its workers. Memory is in bytes, one figure for each worker."""

    specs: Mapping[str, Spec]
    workers: tuple[Layers, ...]
    vllm_config: Mapping[str, object]
    available_memory: tuple[int, ...]
    shared_objects: bool = False
    least: tuple[int, ...] = field(default=(), compare=False)
    """What a request of one token needs, by groups with the null block and without it, and by layers; for questions."""

    @property
    def layers(self) -> Layers:
        """The layers of all workers, each once."""
        return joined(self.workers)

    @property
    def one_memory(self) -> int:
        """The memory of the first worker, for questions about one worker that has all layers."""
        return self.available_memory[0] if self.available_memory else 0

    def about_layers(self, **more: object) -> dict[str, object]:
        """Inputs of a question about all layers in one mapping."""
        inputs: dict[str, object] = {"specs": dict(self.specs), "layers": listed(self.layers), **more}
        return inputs | ({"shared_objects": True} if self.shared_objects else {})

    def about_workers(self) -> dict[str, object]:
        """Inputs of the question about the whole configuration."""
        return {
            "specs": dict(self.specs),
            "workers": [listed(worker) for worker in self.workers],
            "vllm_config": dict(self.vllm_config),
            "available_memory": list(self.available_memory),
            **({"shared_objects": True} if self.shared_objects else {}),
        }


def configuration_of(inputs: Mapping[str, Any]) -> Configuration:
    """The configuration whose `about_workers` this is."""
    return Configuration(
        inputs["specs"],
        tuple(tuple((name, spec) for name, spec in worker) for worker in inputs["workers"]),
        inputs["vllm_config"],
        tuple(inputs["available_memory"]),
        inputs.get("shared_objects", False),
    )


def joined(workers: Sequence[Layers]) -> Layers:
    """The layers of all workers in order, each once."""
    names: dict[str, str] = {}
    for worker in workers:
        for layer, spec in worker:
            names.setdefault(layer, spec)
    return tuple(names.items())


def listed(layers: Layers) -> list[object]:
    """The layers as JSON has them."""
    return [list(layer) for layer in layers]


def draw_configuration(draw: Draw, ask: Ask, more: Mapping[str, Sequence[object]]) -> Configuration:
    """A configuration. `ask` answers what a full-length request needs, so that memory is drawn around it. `more`:
    settings that only some releases have, with values of them."""
    style = draw_style(draw)
    specs, layers = _draw_deepseek_v4(draw) if draw.integer(0, 7) == 7 else _draw_model(draw, style)
    settings = draw_settings(draw, style) | {name: draw.choose(values) for name, values in more.items()}
    workers = draw_workers(draw, layers, specs)
    used = {spec for worker in workers for _, spec in worker}
    specs = {name: spec for name, spec in specs.items() if name in used}
    shared = len(layers) > len(specs) and draw.integer(0, 9) == 9
    configuration = Configuration(specs, workers, settings, (), shared)
    needs = _needs(configuration, ask)
    if draw.integer(0, 5) == 5:
        pages = needs[0][1] if needs else 8
        settings["num_gpu_blocks_override"] = draw.choose((pages, max(pages - 1, 0), pages * 2, 1, 51, 0))
    memory = _draw_memory(draw, needs, len(workers))
    return replace(configuration, available_memory=memory, least=_least(configuration, ask))


def _draw_model(draw: Draw, style: Style) -> tuple[dict[str, Spec], Layers]:
    if draw.integer(0, 39) == 39:
        return {}, ()
    specs = draw_specs(draw, style)
    if draw.integer(0, 9) == 9:
        specs[SPELLED] = spelled_out(specs["s0"])
    names = _PATTERNS[draw.integer(0, len(_PATTERNS) - 1)](draw, tuple(specs), draw.choose(SIZES))
    layers = [(f"l{index}", name) for index, name in enumerate(names)]
    if draw.integer(0, 7) == 7:
        layers.append(("draft0", draw.choose(tuple(specs))))
    return specs, tuple(layers)


def _blocks(draw: Draw, names: Sequence[str], size: int) -> list[str]:
    """First all layers of one spec, then all of the next."""
    return [name for name in names for _ in range(draw.integer(1, max(1, 2 * size // len(names))))]


def _in_turn(draw: Draw, names: Sequence[str], size: int) -> list[str]:
    return [names[index % len(names)] for index in range(max(size, len(names)))]


def _every_nth(draw: Draw, names: Sequence[str], size: int) -> list[str]:
    """One spec at every n-th place, another one elsewhere; the rest at the end."""
    period = draw.choose((2, 3, 4, 6, 8))
    often, rare, *rest = (*names, names[0])
    return [rare if index % period == period - 1 else often for index in range(size)] + rest


def _at_random(draw: Draw, names: Sequence[str], size: int) -> list[str]:
    return [draw.choose(names) for _ in range(size)]


_PATTERNS = (_in_turn, _every_nth, _blocks, _at_random)


def _draw_deepseek_v4(draw: Draw) -> tuple[dict[str, Spec], Layers]:
    specs, caches = draw_deepseek_v4(draw)
    return specs, tuple((f"l{index}.{name}", name) for index, names in enumerate(caches) for name in names)


def draw_settings(draw: Draw, style: Style) -> dict[str, object]:
    """What the questions call `vllm_config`, without an override of the number of blocks."""
    settings: dict[str, object] = {}

    def sometimes(one_in: int, name: str, options: Sequence[object]) -> None:
        if draw.integer(1, one_in) == one_in:
            settings[name] = draw.choose(options)

    length = draw.choose(LENGTHS) if draw.integer(0, 99) < 99 else 0
    settings["max_model_len"] = length
    sometimes(5, "original_max_model_len", (-1,))
    sometimes(2, "max_num_batched_tokens", (1, 2, 7, 64, 2048, 8192))
    sometimes(4, "max_num_encoder_input_tokens", (1500, 1, 17))
    sometimes(2, "block_size", (style.block_size, style.block_size * 4, 1))
    sometimes(10, "decode_context_parallel_size", (2, 4))
    sometimes(12, "prefill_context_parallel_size", (2, 3))
    sometimes(3, "mamba_cache_mode", ("all", "align"))
    sometimes(3, "enable_prefix_caching", (False,))
    sometimes(4, "kv_connector", (True,))
    sometimes(4, "use_eagle", (True,))
    sometimes(5, "disable_hybrid_kv_cache_manager", (True,))
    sometimes(3, "hash_block_size", (style.block_size, 1, 2, 4, 8, 16, 7, 0, -16))
    return settings


def draw_workers(draw: Draw, layers: Layers, specs: Mapping[str, Spec]) -> tuple[Layers, ...]:
    """The layers on 1 to 4 workers: pipeline stages, copies, or at random; a worker may have none."""
    count = draw.choose((1, 1, 1, 2, 2, 3, 4))
    way = draw.choose(("stages", "stages", "copies", "at random"))
    if count == 1:
        return (layers,)
    if way == "copies":
        return _copies(draw, layers, count, specs)
    if way == "at random":
        owners = [draw.integer(0, count - 1) for _ in layers]
    else:
        cuts = sorted(draw.integer(0, len(layers)) if draw.integer(0, 2) == 2 else -1 for _ in range(count - 1))
        cuts = [len(layers) * (index + 1) // count if cut < 0 else cut for index, cut in enumerate(cuts)]
        owners = [sum(index >= cut for cut in cuts) for index in range(len(layers))]
    pairs = list(zip(layers, owners, strict=True))
    return tuple(tuple(layer for layer, owner in pairs if owner == worker) for worker in range(count))


def _copies(draw: Draw, layers: Layers, count: int, specs: Mapping[str, Spec]) -> tuple[Layers, ...]:
    """Every worker has every layer; once in a while one of them has another spec for a layer, which is an error."""
    workers = [list(layers) for _ in range(count)]
    if SPELLED in specs and draw.integer(0, 1):
        workers[-1] = [(layer, SPELLED if spec == "s0" else spec) for layer, spec in layers]
    if layers and draw.integer(0, 9) == 9:
        workers[-1][draw.integer(0, len(layers) - 1)] = (layers[0][0], draw.choose(tuple(specs)))
    return tuple(tuple(dict(worker).items()) for worker in workers)


def _needs(configuration: Configuration, ask: Ask) -> list[tuple[int, int]]:
    """For each worker, bytes of a block and blocks of a full-length request; empty where the model refuses."""
    settings = {name: value for name, value in configuration.vllm_config.items() if name != "original_max_model_len"}
    answer = ask("needed", configuration.about_layers(vllm_config=settings)).get("output")
    if not answer or not answer["pool_bytes_per_block"]:
        return []
    pages = -(-answer["from_groups"] // answer["pool_bytes_per_block"])
    if len(configuration.workers) == 1:
        return [(answer["pool_bytes_per_block"], pages)]
    # What a block costs a worker shows in the tensors of a pool of known size.
    plenty = configuration.about_workers() | {
        "vllm_config": {**settings, "num_gpu_blocks_override": max(pages, 1)},
        "available_memory": [0] * len(configuration.workers),
    }
    configs = ask("configs", plenty).get("output")
    if not configs:
        return [(answer["pool_bytes_per_block"], pages)] * len(configuration.workers)
    return [(_bytes_per_block(configs["workers"], worker), pages) for worker in configs["workers"]]


def _least(configuration: Configuration, ask: Ask) -> tuple[int, ...]:
    """See `Configuration.least`; empty where the model refuses."""
    settings = {**configuration.vllm_config, "max_model_len": 1}
    answer = ask("needed", configuration.about_layers(vllm_config=settings)).get("output")
    if not answer:
        return ()
    by_groups = answer["from_groups"]
    return by_groups, by_groups - answer["pool_bytes_per_block"], answer["sum_over_layers"]


def _bytes_per_block(workers: Sequence[Mapping[str, Any]], worker: Mapping[str, Any]) -> int:
    while "same_as" in worker:
        worker = workers[worker["same_as"]]
    return allocated(worker["tensors"]) // max(1, int(worker["num_blocks"]))


def allocated(tensors: Sequence[Sequence[Any]]) -> int:
    """Bytes of the tensors: of each for itself, or of the one allocation in which they are placed by strides."""
    placed = [tensor[0] for tensor in tensors if len(tensor) > 2]
    return max(placed) if placed else sum(tensor[0] for tensor in tensors)


def _draw_memory(draw: Draw, needs: Sequence[tuple[int, int]], workers: int) -> tuple[int, ...]:
    """Bytes for each worker, most often close to what it needs."""
    ways = ("enough", "exactly", "plenty", "one byte short", "one block short", "part", "anything", "nothing")
    usual = draw.choose((*ways[:4], *ways[:3], *ways))
    memory = []
    for index in range(workers):
        way = usual if draw.integer(0, 9) < 9 else draw.choose(ways)
        if not needs or way == "anything":
            memory.append(draw.integer(0, 1 << draw.choose((20, 34, 44))))
            continue
        size, pages = needs[index]
        exactly = size * pages
        memory.append(
            {
                "exactly": exactly,
                "enough": exactly + draw.integer(0, 3 * size + 1),
                "plenty": exactly * draw.integer(2, 50) + draw.integer(0, 99),
                "one byte short": exactly - 1,
                "one block short": exactly - size,
                "part": exactly * draw.integer(0, 99) // 100,
                "nothing": draw.choose((0, -1, -5000)),
            }[way]
        )
    if draw.integer(0, 59) == 59:
        memory.pop()
    return tuple(memory)
