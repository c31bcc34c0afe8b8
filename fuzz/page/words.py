"""Operations and groups as sentences, for a reader who does not know the calls."""

import re
from collections.abc import Sequence

from ...model import ops
from ...model.ops import FULL_FAMILY, SLIDING_FAMILY, Group, Operation, Shape
from ..findings.words import operation_text, plural

MOST_BLOCKS = 12
"""Blocks that a sentence lists."""


def operation_words(operation: Operation) -> str:
    """What the operation asks for, in a sentence.

    >>> operation_words(ops.Allocate("a", 3, hit=True))
    'Request a asks for room for 3 tokens, using the hit of its lookup.'
    """
    match operation:
        case ops.Submit():
            return f"Request {operation.request} arrives with {', '.join(_arrival(operation))}."
        case ops.Allocate():
            return f"Request {operation.request} asks for room for {', '.join(_room(operation))}."
        case ops.AllocateBatch(names, count, lookahead, in_flight):
            each = ", ".join(_room(ops.Allocate("", count, lookahead=lookahead, in_flight=in_flight)))
            return f"In one call, requests {', '.join(names)} ask for room for {each} each."
        case ops.Advance(name, sampled, rejected):
            taken = f"; {plural(rejected, 'draft')} rejected" if rejected else ""
            said = f", which samples {plural(len(sampled), 'token')}" if sampled else ""
            return f"The step of request {name} has run{said}{taken}."
        case ops.Reject(name, count):
            return f"{plural(count, 'draft')} of request {name} rejected after the step was counted."
        case ops.OnRequest(name):
            return _PLAIN[type(operation)].format(name)
        case ops.Evict(blocks):
            return f"The content of {_listed(blocks)} is forgotten."
        case ops.Take(count):
            return f"An outside holder takes {plural(count, 'block')} from the pool."
        case ops.Touch(blocks):
            return f"An outside holder holds {_listed(blocks)}, too."
        case ops.Release(blocks, prepend):
            return f"An outside holder gives back {_listed(blocks)}{', to the front of the queue' if prepend else ''}."
    return _PLAIN[type(operation)]


def step_text(operation: Operation) -> str:
    """The operation as in traces, lists of numbers in square brackets.

    >>> step_text(ops.Submit("a", (0,))), step_text(ops.Advance("a", (3, 4)))
    ('Submit a, prompt=[0]', 'Advance a, sampled=[3, 4]')
    """
    text, before = operation_text(operation), ""
    while text != before:  # from the inside out
        text, before = _NUMBERS.sub(r"[\1]", text), text
    return text


_NUMBERS = re.compile(r"(?<![\w.])\(((?:[-+.\de]+|\[[^()]*\]|None)(?:, (?:[-+.\de]+|\[[^()]*\]|None))*|),?\)")
"""A tuple of numbers, or of such lists, as Python writes it."""
_PLAIN = {
    ops.Lookup: "Request {} looks for the longest prefix of it that is cached.",
    ops.Arrive: "The external tokens of request {} have arrived.",
    ops.Landed: "The oldest step of request {} that still runs has left the device.",
    ops.Free: "Request {} ends and gives its blocks back.",
    ops.Preempt: "Request {} is preempted: it gives its blocks back and starts again.",
    ops.RemoveSkipped: "Request {} gives back the blocks that no query of it reads any more.",
    ops.CommonPrefix: "How many leading blocks do all running requests share with {}?",
    ops.ReadTable: "Which blocks does request {} hold?",
    ops.Reset: "The cache is reset: every content is to be forgotten.",
    ops.StepStart: "A scheduler step begins.",
    ops.TakeEvents: "The events since the last call are drained.",
    ops.TakeNewBlockIds: "The ids of newly handed out blocks are drained.",
    ops.TakeStats: "The statistics since the last call are drained.",
}


def _arrival(operation: ops.Submit) -> list[str]:
    version = f" ({operation.adapter_version})" if operation.adapter_version else ""
    return [
        f"a prompt of {plural(len(operation.prompt), 'token')}",
        *([f"adapter {operation.adapter}{version}"] if operation.adapter else []),
        *([f"salt {operation.salt}"] if operation.salt else []),
        *([plural(len(operation.items), "multimodal item")] if operation.items else []),
        *(["embeddings in place of tokens"] if operation.embeds is not None else []),
        *(["without looking into the cache"] if operation.skip_lookup else []),
    ]


def _room(operation: ops.Allocate) -> list[str]:
    return [
        plural(operation.new_tokens, "token"),
        *(["using the hit of its lookup"] if operation.hit else []),
        *([f"{plural(operation.lookahead, 'token')} of lookahead"] if operation.lookahead else []),
        *([f"{plural(operation.external, 'token')} from outside"] if operation.external else []),
        *(["which arrive later"] if operation.delay else []),
        *([f"{plural(operation.encoder_tokens, 'token')} of the encoder"] if operation.encoder_tokens else []),
        *(["if the whole sequence fits"] if operation.gate else []),
        *([f"leaving {plural(operation.reserved, 'block')} to others"] if operation.reserved else []),
        *([f"with {plural(operation.in_flight, 'token')} in flight"] if operation.in_flight else []),
    ]


def _listed(blocks: Sequence[int]) -> str:
    shown = ", ".join(map(str, blocks[:MOST_BLOCKS]))
    more = f" and {len(blocks) - MOST_BLOCKS} more" if len(blocks) > MOST_BLOCKS else ""
    return f"{'block' if len(blocks) == 1 else 'blocks'} {shown}{more}"


def group_words(group: Group, shape: Shape) -> str:
    """What a group keeps, in a few words.

    >>> group_words(Group("sliding", 2, window=4), Shape((), 1, 1, 1, 1, 1))
    'sliding window of 4 tokens, 2 tokens a block'
    """
    kind = {"mla": "latent attention", "tq": "quantized attention", "sink": "attention with sinks"}.get(group.kind, "")
    what = kind or f"{group.kind} attention"
    if group.kind in SLIDING_FAMILY:
        latent = "latent " if group.kind == "sliding_mla" else ""
        what = f"{latent}sliding window of {plural(group.window, 'token')}"
    elif group.kind == "chunked":
        what = f"chunks of {plural(group.chunk, 'token')}"
    elif group.kind == "mamba":
        what = f"Mamba states, mode {group.mamba_mode}"
    elif group.kind in FULL_FAMILY:
        what = kind or "full attention"
    drafts = ", read by the draft model" if group.eagle else ""
    return f"{what}, {plural(group.block_size * shape.parallel, 'token')} a block{drafts}"
