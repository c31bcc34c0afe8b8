"""Scripts: the input of the liveness oracle. A script says when each request arrives and which tokens it will sample.

A script is a trace of three kinds of operation: `Submit`, directly followed by one `Advance` with all tokens that the
request will sample; and `StepStart` for each scheduler step before the next arrival. Everything else is up to the
scheduler.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ....model.attention import RULES, Mamba
from ....model.ops import Advance, Kind, Operation, Shape, StepStart, Submit
from ...findings.finding import Trace
from ...findings.offered import OF_TODAY
from ...workload.draw import Draw
from ...workload.shapes import draw_shape, with_offered
from .bounds import Bounds

MAX_OUTPUTS = 12
"""The most tokens that a request of a generated script samples."""


def is_script(trace: Trace) -> bool:
    """True if the trace is a script."""
    operations, seen = iter(trace.operations), set[str]()
    for operation in operations:
        if isinstance(operation, StepStart):
            continue
        following = next(operations, None)
        if not (isinstance(operation, Submit) and isinstance(following, Advance)):
            return False
        name, length = operation.request, len(operation.prompt) + len(following.sampled)
        if name in seen or following != Advance(name, following.sampled):
            return False
        if not (operation.prompt and following.sampled and length <= trace.shape.max_model_len):
            return False
        seen.add(name)
    return bool(seen)


def draw_script(
    draw: Draw,
    kinds: Sequence[Kind],
    block_sizes: Sequence[int] = (),
    losses: frozenset[str] = frozenset(),
    lacks: Collection[str] = OF_TODAY,
) -> Trace:
    """A script with some requests that share prefixes, and a pool that holds little more than the largest of them.

    All requests fit alone. Some scripts have one more request, for which the pool is just too small. `block_sizes` as
    for `draw_shape`, `losses` as for `Bounds`, `lacks` as for `with_offered`.
    """
    shape = _wide_enough(draw, with_offered(draw, draw_shape(draw, kinds, block_sizes), lacks))
    families = [_tokens(draw, shape.max_model_len) for _ in range(2)]
    lengths = [_lengths(draw, shape) for _ in range(draw.choose((1, 2, 2, 3, 4, 6)))]
    largest = max(Bounds(shape, losses).most(prompt + outputs - 1) for prompt, outputs in lengths)
    sinks = shape.num_blocks - 1 - Bounds(shape).usable
    shape = replace(shape, num_blocks=1 + sinks + largest + draw.choose((0, 0, 1, 2, largest, 3 * largest)))
    hopeless = _hopeless_prompt(shape) if draw.integer(0, 3) == 0 else None
    if hopeless:
        lengths.insert(draw.integer(0, len(lengths)), (hopeless, 1))
    operations: list[Operation] = []
    for number, (prompt, outputs) in enumerate(lengths):
        operations += [StepStart()] * (draw.choose((0, 0, 0, 1, 3)) if number else 0)
        operations += _request(draw, f"r{number}", draw.choose(families), prompt, outputs)
    return Trace(shape, tuple(operations))


def _wide_enough(draw: Draw, shape: Shape) -> Shape:
    """The shape with a token budget of at least one block of each Mamba group, as engines require at start-up. It is
    often large enough for several requests in one step."""
    states = [group.block_size for group in shape.groups if RULES[group.kind] is Mamba]
    budget = draw.choose((shape.max_num_batched_tokens, shape.max_num_batched_tokens, 2 * shape.max_model_len))
    return replace(shape, max_num_batched_tokens=max([budget, *states]))


def _lengths(draw: Draw, shape: Shape) -> tuple[int, int]:
    """Number of prompt tokens and of sampled tokens."""
    longest = shape.max_model_len - 1
    prompt = draw.integer(1, draw.choose((longest, longest, max(1, longest // 2))))
    return prompt, draw.integer(1, min(MAX_OUTPUTS, shape.max_model_len - prompt))


def _hopeless_prompt(shape: Shape) -> int | None:
    """Length in tokens of the shortest prompt that can never fit; None if there is none."""
    bounds = Bounds(shape)
    return next((length for length in range(1, shape.max_model_len) if bounds.hopeless(length)), None)


def _request(draw: Draw, name: str, family: tuple[int, ...], prompt: int, outputs: int) -> list[Operation]:
    shared = draw.choose((prompt, prompt, prompt // 2, 0))
    tokens = family[:shared] + _tokens(draw, prompt - shared)
    submit = Submit(name, tokens, skip_lookup=draw.integer(0, 9) == 0)
    return [submit, Advance(name, _tokens(draw, outputs))]


def _tokens(draw: Draw, count: int) -> tuple[int, ...]:
    return tuple(draw.integer(0, 2) for _ in range(count))


def simpler_scripts(trace: Trace) -> Iterator[Trace]:
    """Candidates for shrinking that make requests or groups smaller and the pool by as much, so that it stays as full.

    The general passes of the shrinker change one thing at a time. Empty for a trace that is not a script.
    """
    if is_script(trace):
        largest = _largest(trace)
        for simpler in _smaller_needs(trace):
            blocks = trace.shape.num_blocks + _largest(simpler) - largest
            yield Trace(replace(simpler.shape, num_blocks=max(1, blocks)), simpler.operations)


def _largest(trace: Trace) -> int:
    """The most blocks that any one request of the script can hold (`Bounds.most`)."""
    pairs = zip(trace.operations, trace.operations[1:], strict=False)
    return max(
        Bounds(trace.shape).most(len(submit.prompt) + len(advance.sampled) - 1)
        for submit, advance in pairs
        if isinstance(submit, Submit) and isinstance(advance, Advance)
    )


def _smaller_needs(trace: Trace) -> Iterator[Trace]:
    """The script without one of the groups; or with a shorter prompt, or fewer samples, of one request."""
    shape, operations = trace.shape, trace.operations
    for i in range(len(shape.groups) if len(shape.groups) > 1 else 0):
        yield Trace(replace(shape, groups=shape.groups[:i] + shape.groups[i + 1 :]), operations)
    for i, operation in enumerate(operations):
        if isinstance(operation, Submit):
            for prompt in _parts(operation.prompt, shape.hash_block_size):
                yield Trace(shape, (*operations[:i], replace(operation, prompt=prompt), *operations[i + 1 :]))
        elif isinstance(operation, Advance):
            for sampled in _parts(operation.sampled, shape.hash_block_size):
                yield Trace(shape, (*operations[:i], replace(operation, sampled=sampled), *operations[i + 1 :]))


def _parts(tokens: tuple[int, ...], unit: int) -> Iterator[tuple[int, ...]]:
    for count in dict.fromkeys((1, len(tokens) // 2, len(tokens) - unit, len(tokens) - 1)):
        if 0 < count < len(tokens):
            yield tokens[:count]
