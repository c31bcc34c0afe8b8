"""What a scheduler may ask for in the present state: rules that every generator of operations shares."""

from collections.abc import Iterable, Sequence

from ...model.attention import RULES, Mamba
from ...model.legal import allows
from ...model.ops import Arrive, Group, Item, Kind, Shape
from ...model.state import Request
from ..kinds import KINDS
from .scene import Scene


def tokens_of(number: int, count: int, size: int) -> tuple[int, ...]:
    """`count` tokens below `size`, the digits of one number, lowest first: one choice instead of one a token."""
    if size == 1:
        return (0,) * count
    tokens = []
    for _ in range(count):
        number, token = divmod(number, size)
        tokens.append(token)
    return tuple(tokens)


ITEMS = ("p", "q", "*", "+")
"""Letters of items. The last two stand for one identifier, the last one for its shorter form."""
FIRST_ITEMS = ("p", "p", "p", "*", "+")
"""Of the first item of a request: mostly the same one, so that what the others do not tell apart collides."""


def item_named(letter: str, offset: int, length: int) -> Item:
    """The item of a letter at a place of at most `length` tokens. Most identifiers hold their length, and end
    as those of other items do."""
    if letter in ("*", "+"):
        return Item("*", offset, length if letter == "*" else max(1, length - 1))
    return Item(f"{letter}{length:03}", offset, length)


def without_rows(prompt: tuple[int, ...], embeds: tuple[int | None, ...] | None) -> tuple[int, ...]:
    """The prompt with token 0 wherever a row of embeddings is read instead."""
    return tuple(token if row is None else 0 for token, row in zip(prompt, embeds, strict=True)) if embeds else prompt


def draftable(shape: Shape, most: int, known: int = 1) -> int:
    """Drafts that a step may have behind so many known tokens, at most `most`: schedulers do not draft more than Mamba
    layers have states for, one for each token of a step with drafts but the first."""
    states = (group.speculative_blocks + 1 - known for group in shape.groups if RULES[group.kind] is Mamba)
    return max(0, min([most, *states]))


def keeps_states_of(kinds: Sequence[Kind]) -> bool:
    """True if one of these kinds keeps states."""
    return any(RULES[kind] is Mamba for kind in kinds)


def sink_blocks(groups: Iterable[Group]) -> int:
    """Blocks that a core of one rank keeps for the sinks of these groups."""
    return sum(group.sink_len // group.block_size for group in groups if "sink_len" in KINDS[group.kind].needs)


def keeps_states(shape: Shape) -> bool:
    """True if some layers keep states: these allow less than keys and values do."""
    return keeps_states_of([group.kind for group in shape.groups])


def holds_nothing(scene: Scene, name: str) -> bool:
    """True if the request has no block of any group."""
    return not any(tables.get(name) for tables in scene.state.tables)


def most_rejected(request: Request) -> int:
    """Drafts of the step that was allocated which may be rejected: at least one token of it is kept."""
    end = request.computed + request.scheduled
    return max(0, min(end - len(request.tokens), request.scheduled - 1))


def sampled_by_step(request: Request, rejected: int, max_model_len: int) -> int:
    """Tokens that the step which was allocated brings: those behind the known ones, and the next one."""
    known = len(request.tokens)
    end = request.computed + request.scheduled - rejected
    return max(0, min(end + 1 - known, max_model_len - known))


def may_go_ahead(request: Request, shape: Shape) -> bool:
    """True if the news of the step that runs may come later: states are kept of one step without news, not of two."""
    return not (keeps_states(shape) and request.lead)


def sampled_late(request: Request, max_model_len: int) -> int:
    """Tokens that were sampled before and are not known yet."""
    return min(request.lead, max_model_len - len(request.tokens))


def new_tokens_for(request: Request, start: int, budget: int, drafts: int, shape: Shape) -> int:
    """Tokens that a step behind the first `start` ones asks for: all known ones that the budget has room for, else the
    next one; then, if no known token is left, up to `drafts` drafts, as many as the step may have."""
    wanted = max(len(request.tokens) - start, 1)
    new = min(budget, wanted)
    behind = draftable(shape, drafts, new) if new == wanted else 0
    return max(0, min(new + behind, shape.max_model_len - start))


def about_taken(scene: Scene, request: Request, rows: Sequence[Sequence[int]], end: int) -> int:
    """About as many blocks as leave the free queue for a step up to `end` tokens behind a hit with these rows: those
    that its tables lack, of states the running one and those of drafts, and those of the hit that nobody holds."""
    name, counts, taken = request.submit.request, scene.state.references(), 0
    for number, (group, tables) in enumerate(zip(scene.shape.groups, scene.state.tables, strict=True)):
        row = rows[number] if rows else ()
        held = len(tables.get(name) or row)
        missing = max(0, -(-end // (group.block_size * scene.shape.parallel)) - held)
        if keeps_states_of([group.kind]):
            missing = min(missing, 1) + (0 if tables.get(name) else group.speculative_blocks)
        taken += missing + sum(not counts[block] for block in row if block)
    return taken


def failures(scene: Scene, request: Request, size: int) -> list[int]:
    """How many of the tokens that are being loaded may fail, so that the request can go on with the others: those
    from the end of a block of `size` tokens on, where there is such a place; empty where nothing else than all may."""
    name = request.submit.request
    missing = [count for count in range(1, request.arriving + 1) if allows(scene, Arrive(name, count))]
    return [count for count in missing if (request.computed - count) % size == 0] or missing


def most_flights(request: Request | None) -> int:
    """How many steps and loads of a request may be under way, at most: a load that it waits for, the step that was
    allocated, and steps that have told no token yet, of which each has computed one at least."""
    return 0 if request is None else (request.arriving > 0) + (request.scheduled > 0) + request.lead
