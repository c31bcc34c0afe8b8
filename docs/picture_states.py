"""What a picture shows: operations applied to the model, and what is read off it after them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from blockproof.fuzz.findings.words import plural
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page.words import group_words, operation_words
from blockproof.model import ops
from blockproof.model.core import Model
from blockproof.model.legal import allows
from blockproof.model.ops import NULL, Done, Operation, Outcome, Shape
from blockproof.model.snapshot import Snapshot


@dataclass(frozen=True)
class Frame:
    """Operations, and what is drawn behind the last of them: any of `tables`, `pool` and `queue`."""

    operations: tuple[Operation, ...]
    show: str = "tables"
    brief: bool = False
    """Are the operations only named, not told one by one?"""


@dataclass(frozen=True)
class Scene:
    """A picture: a core and what happens to it. With a `target`, that one is drawn beside the model in the end."""

    name: str
    title: str
    shape: Shape
    frames: tuple[Frame, ...]
    target: str = ""

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Those of all frames."""
        return tuple(operation for frame in self.frames for operation in frame.operations)


@dataclass(frozen=True)
class Table:
    """The block table of a request in a group. Positions and sizes in tokens."""

    request: str
    group: int
    kind: str
    size: int
    entries: tuple[int, ...]
    new: frozenset[int]
    """Entries that have changed in this frame."""
    computed: int
    query: int
    """The next query stands here."""
    reads: tuple[int, ...]
    """What it reads of the tokens before it."""


@dataclass(frozen=True)
class Block:
    """A block of the pool."""

    number: int
    holders: tuple[str, ...]
    """The requests that hold it; `sink` or `ext` for what is held beside all tables."""
    registered: bool
    free: bool
    """Does it stand in the free queue?"""


@dataclass(frozen=True)
class Panel:
    """One part of a picture."""

    said: tuple[str, ...]
    tables: tuple[Table, ...]
    blocks: tuple[Block, ...]
    queue: tuple[int, ...]
    show: str
    new: frozenset[int]
    """Blocks that have changed in this frame."""
    came: frozenset[int]
    """Those that have entered the free queue in it."""


def panels(scene: Scene) -> list[Panel]:
    """The parts of a picture. ValueError if an operation makes no sense where it stands."""
    model, drawn = Model(scene.shape), []
    prompts: dict[str, tuple[int, ...]] = {}
    snapshot = model.snapshot()
    for frame in scene.frames:
        before, said = snapshot, []
        for operation in frame.operations:
            if not allows(model, operation):
                raise ValueError(f"{scene.name}: {operation} makes no sense here")
            last = snapshot
            outcome, snapshot = model.step(operation)
            said += [operation_words(operation), _alike(operation, prompts), _answer(model, operation, last, outcome)]
        told = _in_brief(frame) if frame.brief else tuple(filter(None, said)) or ("The core has just been built.",)
        drawn.append(_panel(model, snapshot, before, frame, told))
    return drawn + _of_the_target(scene, model)


def _in_brief(frame: Frame) -> tuple[str, ...]:
    """What each request of a frame has done, from its arrival on, in a sentence."""
    lines = []
    for arrival in frame.operations:
        if isinstance(arrival, ops.Submit):
            kinds = Counter(type(one) for one in frame.operations if getattr(one, "request", "") == arrival.request)
            steps, words = plural(kinds[ops.Allocate], "step"), operation_words(arrival).removesuffix(".")
            lines.append(f"{words}, {f'runs {steps} and ends' if kinds[ops.Free] else f'and runs {steps}'}.")
    return tuple(lines)


def _of_the_target(scene: Scene, model: Model) -> list[Panel]:
    """The same for the target of a scene, behind the last operation."""
    if not scene.target:
        return []
    target, right = open_target(scene.target), model.snapshot()
    target.start(scene.shape)
    for operation in scene.operations:
        _, snapshot = target.step(operation)
    target.close()
    said = (f"{scene.target} behind the same operations. Drawn bold: where it differs from the model.",)
    return [_panel(model, snapshot, right, scene.frames[-1], said)]


def _panel(model: Model, snapshot: Snapshot, before: Snapshot, frame: Frame, said: tuple[str, ...]) -> Panel:
    tables = [
        _table(model, snapshot, before, request, group)
        for request in model.requests
        for group in range(len(model.rules))
        if request in snapshot.tables[group]
    ]
    blocks = tuple(_blocks(model, snapshot))
    return Panel(
        said,
        tuple(tables),
        blocks,
        tuple(snapshot.free),
        frame.show,
        frozenset(new.number for new, old in zip(blocks, _blocks(model, before), strict=True) if new != old),
        frozenset(snapshot.free) - frozenset(before.free),
    )


def _table(model: Model, snapshot: Snapshot, before: Snapshot, request: str, group: int) -> Table:
    rule, state = model.rules[group], model.requests[request]
    entries, old = snapshot.tables[group][request], before.tables[group].get(request, [])
    query = state.computed
    return Table(
        request,
        group,
        group_words(rule.group, model.shape),
        rule.b,
        tuple(entries),
        frozenset(i for i, block in enumerate(entries) if i >= len(old) or old[i] != block),
        state.computed,
        query,
        tuple(t for t in range(query) if rule.attends(query, t)),
    )


def _blocks(model: Model, snapshot: Snapshot) -> list[Block]:
    found = []
    for block, references in enumerate(snapshot.ref_cnt):
        tables = [(name, table) for tables in snapshot.tables for name, table in tables.items() if block != NULL]
        held = sorted({name for name, table in tables if block in table})
        beside = "sink" if block in model.state.sinks else "ext"
        found.append(
            Block(
                block,
                tuple(held or [beside] * bool(references)),
                snapshot.labels[block] is not None,
                block in snapshot.free,
            )
        )
    return found


def _alike(operation: Operation, prompts: dict[str, tuple[int, ...]]) -> str:
    """How a prompt begins that begins like an earlier one; it is put down with these."""
    if not isinstance(operation, ops.Submit):
        return ""
    shared = {name: _common(operation.prompt, prompt) for name, prompt in prompts.items()}
    prompts[operation.request] = operation.prompt
    name = max(shared, key=shared.__getitem__, default="")
    return f"Its first {shared[name]} tokens are those of {name}." if shared.get(name) else ""


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (mine, its) in pairs if mine != its), min(len(one), len(other)))


def _answer(model: Model, operation: Operation, before: Snapshot, outcome: Outcome) -> str:
    """What came back, for a reader."""
    match operation, outcome:
        case _, ops.Refused():
            return f"→ {model.refusal}: {plural(model.state.num_free(), 'block')} free."
        case ops.Lookup(), Done((int(tokens), tuple(rows))):
            found = [" ".join(map(_name, row)) for row in rows if isinstance(row, tuple)]
            return f"→ a hit of {tokens} tokens: {' and '.join(found)}." if tokens else "→ no hit."
        case ops.Allocate(request), Done():
            hit = model.requests[request].hit if operation.hit else None
            new = [
                _new(model, before, request, group, hit[1][group] if hit else []) for group in range(len(model.rules))
            ]
            return f"→ new: {' and '.join(new)}." if set(new) != {"none"} else "→ nothing new."
    return ""


def _new(model: Model, before: Snapshot, request: str, group: int, hit: Sequence[int]) -> str:
    """The blocks that a table has got in an operation, but for those of a hit."""
    table, old = model.state.tables[group][request], before.tables[group].get(request, [])
    new = [block for i, block in enumerate(table) if block not in (NULL, *hit, *old[i : i + 1])]
    return " ".join(map(str, new)) or "none"


def _name(block: object) -> str:
    return "∅" if block == NULL else str(block)
