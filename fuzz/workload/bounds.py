"""What a scheduler may ask for in the present state: rules that every generator of operations shares."""

from ...model.ops import Group, Item, Shape
from ...model.requests import Request
from ...model.scene import Scene


def tokens_of(number: int, count: int, size: int) -> tuple[int, ...]:
    """`count` tokens below `size`, the digits of one number, lowest first: one choice instead of one a token."""
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
    """The item of a letter at a place of at most `length` tokens. Most identifiers hold their length."""
    if letter in ("*", "+"):
        return Item("*", offset, length if letter == "*" else max(1, length - 1))
    return Item(f"{letter}{length}", offset, length)


def without_rows(prompt: tuple[int, ...], embeds: tuple[int | None, ...] | None) -> tuple[int, ...]:
    """The prompt with token 0 wherever a row of embeddings is read instead."""
    return tuple(token if row is None else 0 for token, row in zip(prompt, embeds, strict=True)) if embeds else prompt


def draftable(shape: Shape, most: int) -> int:
    """Drafts that a step may have, at most `most`: schedulers do not draft more than Mamba layers have states for, and
    in mode align not so many that a token and its drafts fill more than a block."""
    return min([most, *(states_for_drafts(group) for group in shape.groups if group.kind == "mamba")])


def states_for_drafts(group: Group) -> int:
    """Drafts of one step of which Mamba layers keep the states."""
    p = group.speculative_blocks
    return min(p, group.block_size - 1) if group.mamba_mode == "align" else p


def keeps_states(shape: Shape) -> bool:
    """True if some layers keep states: these allow less than keys and values do."""
    return any(group.kind == "mamba" for group in shape.groups)


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


def sampled_late(request: Request, max_model_len: int) -> int:
    """Tokens that were sampled before and are not known yet."""
    return min(request.lead, max_model_len - len(request.tokens))


def new_tokens_for(request: Request, start: int, budget: int, drafts: int, max_model_len: int) -> int:
    """Tokens that a step behind the first `start` ones asks for: all known ones that the budget has room for, else the
    next one; then `drafts`, if no known token is left."""
    wanted = max(len(request.tokens) - start, 1)
    new = min(budget, wanted)
    return max(0, min(new + (drafts if new == wanted else 0), max_model_len - start))
