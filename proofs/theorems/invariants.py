"""Safety for any size (S1, S2, S4, S5, S6): from any state that satisfies the invariants, every move leads to one.

A state has any number of blocks, groups, requests and entries. Every operation of the core is a sequence of moves
(`invariants.moves`), each where it is allowed, so what no move breaks, no operation breaks. That a step is such a
sequence is checked on every step of random runs (`invariants.replayed`), and here on some runs of the model.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ..claims import FailedError, every, implies, negation, some
from ..heap_theorem import HeapTheorem
from ..invariants import moves, safety, wrong_moves
from ..invariants.moves import Cells, NotAllowedError, World
from ..invariants.plain_world import Made, PlainWorld, first_broken
from ..invariants.random_runs import check_runs
from ..invariants.symbolic_world import Later, SymbolicWorld
from ..roles.moves import MOVES
from ..symbolic import SymbolicInt, running, term
from ..theorem import NegativeControl, Theorem

_VARIABLES = {
    "move": f"which move: {', '.join(f'{number} {name}' for number, name in enumerate(MOVES))}",
    "place": "the place that it is about",
    "other": "the place that a state moves to",
    "block": "the block that it is about",
    "number": "a content, or tokens",
    "p": "any place",
    "q": "any other place",
    "x": "any block",
    "j": "any number of a holder, or of a free block",
    "t": "any table",
}
_GIVING_BACK = ("leave", "drop", "close", "restart", "renew", "settle", "forget")
"""The moves of an operation that gives tables back."""
Facts = Callable[[World, Any], Sequence[Any]]


def _about(name: str, world: World, v: Any) -> tuple[Any, ...]:
    """What a move is about."""
    table = world.table(v.place)

    def empty(now: World, gone: Any) -> Any:
        return every(*(implies(now.table(p) == gone, now.block[p] == 0) for p in (v.p, v.q)))

    def uncut(now: World, request: Any) -> Any:
        return implies(now.request(v.t) == request, now.cut[v.t] == 0)

    about: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(("take", "hit", "touch"), (v.place, v.block)),
        **dict.fromkeys(("pad", "drop", "register", "renew"), (v.place,)),
        "shift": (v.place, v.other),
        "forget": (v.block,),
        "learn": (v.place, v.number),
        "settle": (world.request(table), v.number),
        "cut": (table, v.number),
        "leave": (table,),
        "close": (table, empty),
        "restart": (world.request(table), uncut),
        "construct": (),
    }
    return about[name]


def _chosen(v: Any) -> str:
    """The move that a path is about."""
    number = 0
    while v.move != number:
        number += 1
    return MOVES[number]


def _kept(facts: Facts) -> Callable[[Any, Any], Any]:
    """That something holds after any move."""
    names = _fact_names(facts)

    def problems(before: PlainWorld, after: PlainWorld, made: Made) -> list[str]:
        return [problem for problem in after.problems() if problem.startswith(names)]

    def claim(f: Any, v: Any) -> Any:
        _ = f.move_take  # only the model says what an operation is
        if not isinstance(v.move, SymbolicInt):
            return _tried(f, MOVES[v.move], problems)
        world = Later(SymbolicWorld((v.place, v.other, v.p, v.q)))
        name = _chosen(v)
        try:
            getattr(f, f"move_{name}")(world, *_about(name, world, v))
        except NotAllowedError:
            return True
        return facts(world, v)

    return claim


def _fact_names(facts: Facts) -> tuple[str, ...]:
    return tuple(name for name in facts.__code__.co_names if name in vars(safety))


_TRIED: "WeakKeyDictionary[Any, dict[str, str]]" = WeakKeyDictionary()


def _tried(f: Any, name: str, problems: Callable[[PlainWorld, PlainWorld, Made], Sequence[str]]) -> bool:
    """Try a move in small states; a wrong one in all that there are. FailedError with the first that it breaks.

    Right moves must be what the model's steps consist of: StepError if one does not.
    """
    move = getattr(f, f"move_{name}")
    known = _TRIED.get(f)
    if known is None:
        known = _TRIED[f] = {}
        if all(getattr(f, f"move_{one}") is getattr(moves, one) for one in MOVES):
            check_runs()
    if name not in known:
        known[name] = first_broken(name, move, problems, 60 if move is getattr(moves, name) else 1)
    if known[name]:
        raise FailedError(known[name])
    return True


def _is_move(v: Any) -> list[Any]:
    return [v.move >= 0, v.move < len(MOVES)]


def _wrong(name: str, what: str, move: Callable[..., None]) -> NegativeControl:
    number = MOVES.index(name)
    return NegativeControl(what, {f"move_{name}": move}, assume=lambda v: [v.move == number])


# S1.


def _references(world: World, v: Any) -> list[Any]:
    return [
        safety.held_is_numbered(world, v.p),
        safety.numbers_are_holders(world, v.x, v.j),
        safety.free_is_unheld(world, v.x),
        safety.free_is_counted(world, v.j),
    ]


S1 = HeapTheorem(
    id="S1.inductive",
    sentence="Every block but the null block is free or held, never both, and references and free count are right: "
    "from any state of any size, every move leads to one of which that is true.",
    variables=_VARIABLES,
    assume=_is_move,
    claim=_kept(_references),
    meaning="No block is lost and none has two owners by mistake, however large the pool and however many requests.",
    controls=(
        _wrong("construct", "the null block is free at first", wrong_moves.constructed_with_null),
        _wrong("take", "a block that is handed out stays free", wrong_moves.taken_and_free),
        _wrong("hit", "a hit leaves its block in the free queue", wrong_moves.hit_and_free),
        _wrong("drop", "a block is freed while somebody holds it", wrong_moves.dropped_and_free),
        _wrong("drop", "a block that nobody holds any more is lost", wrong_moves.dropped_and_lost),
        _wrong("touch", "a holder is not counted", wrong_moves.held_uncounted),
    ),
)


# S2.


def _contents(world: World, v: Any) -> list[Any]:
    return [safety.shared_is_equal(world, v.p, v.q), safety.named_by_content(world, v.p)]


S2 = HeapTheorem(
    id="S2.inductive",
    sentence="A block that stands in two entries holds the same content of one group for both, and a registered one is "
    "registered for just that: from any state of any size, every move leads to one of which that is true.",
    variables=_VARIABLES,
    assume=_is_move,
    claim=_kept(_contents),
    meaning="A request never reads what another one wrote for other tokens.",
    controls=(
        _wrong("hit", "a hit takes a block whatever it is registered for", wrong_moves.hit_anything),
        _wrong("take", "a block that somebody holds is handed out", wrong_moves.taken_from_holder),
        _wrong("take", "a block that is handed out keeps its identity", wrong_moves.taken_with_its_name),
        _wrong("register", "a block is registered for what is not in it", wrong_moves.registered_as_another),
        _wrong("renew", "the tokens of a block in use change", wrong_moves.renewed_in_use),
    ),
)


# S4.


def _null(world: World, v: Any) -> list[Any]:
    return [safety.free_is_counted(world, v.j), safety.null_is_nameless(world)]


S4 = HeapTheorem(
    id="S4.inductive",
    sentence="The null block is never free, so never handed out, and never registered: from any state of any size, "
    "every move leads to one of which that is true.",
    variables=_VARIABLES,
    assume=_is_move,
    claim=_kept(_null),
    meaning="What stands for nothing is never handed out as memory, and never found as a hit.",
    controls=(
        _wrong("register", "a null entry is registered", wrong_moves.registered_null),
        _wrong("drop", "a null entry is given back", wrong_moves.dropped_null),
    ),
)


# S5.


class _First(World):
    """The state with which an operation began: of it nothing is known but what S5 says of it and the state now."""

    def __init__(self, now: SymbolicWorld, v: Any) -> None:
        import z3

        integer = z3.IntSort()
        block, length = (z3.Function(f"first_{name}_of", integer, integer) for name in ("block", "length"))
        self.table, self.index, self.request = now.table, now.index, now.request  # type: ignore[method-assign]
        self.reads = now.reads  # type: ignore[method-assign]
        self.block = Cells(lambda place: SymbolicInt(block(term(place))))
        self.length = Cells(lambda table: SymbolicInt(length(term(table))))
        for place in (v.place, v.other, v.p):
            running().assume(term(safety.only_grows(self, now, v.request, place, v.gives_back)))
            inside = implies(
                every(self.in_table(place), self.block[place] != 0), self.index(place) < self.length[self.table(place)]
            )
            running().assume(term(inside))


def _grown(f: Any, v: Any) -> Any:
    _ = f.move_take
    if not isinstance(v.move, SymbolicInt):
        return _tried(f, MOVES[v.move], _changed_too_much)
    name = _chosen(v)
    if name == "construct":
        return True
    before = SymbolicWorld((v.place, v.other, v.p))
    first, world = _First(before, v), Later(before)
    own = some(negation(world.in_table(v.place)), world.request(world.table(v.place)) == v.request)
    if not every(
        own,
        implies(v.gives_back, name in _GIVING_BACK),
        implies(negation(v.gives_back), name not in ("leave", "close")),
    ):
        return True
    try:
        getattr(f, f"move_{name}")(world, *_about(name, world, v))
    except NotAllowedError:
        return True
    return [safety.only_grows(first, world, v.request, v.p, v.gives_back)]


def _changed_too_much(before: PlainWorld, after: PlainWorld, made: Made) -> list[str]:
    """What S5 says of one move: whose request it is, is what it is about."""
    name, about = made
    if name == "construct":
        return []
    by_place = ("take", "hit", "touch", "pad", "drop", "shift", "register", "learn", "renew")
    tables = (
        [before.table(about[0])] if name in by_place else [] if name in ("forget", "settle", "restart") else [about[0]]
    )
    request = before.request(tables[0]) if tables else -1
    gives_back = name in ("leave", "close") or any(before.closing[table] for table in tables)
    places = range(len(before.entries))
    return [
        f"only_grows at {before.shown(place)}"
        for place in places
        if not safety.only_grows(before, after, request, place, gives_back)
    ]


S5 = HeapTheorem(
    id="S5.inductive",
    sentence="Within any operation tables only grow, entries go from a block to null at most (states move between "
    "entries of their table), and no table of another request changes: whatever moves have been made, and whatever the "
    "size, the next one keeps that.",
    variables={
        **_VARIABLES,
        "request": "whose operation it is",
        "gives_back": "whether it gives its tables back",
    },
    assume=_is_move,
    claim=_grown,
    meaning="A worker that keeps its own copy of a table needs to be told of new entries only.",
    controls=(
        _wrong("take", "a new block takes the place of another one", wrong_moves.taken_in_the_middle),
        _wrong("drop", "the last entry is cut off", wrong_moves.shortened),
        _wrong("close", "the next table is forgotten", wrong_moves.closed_in_use),
    ),
)


# S6.


def _read(world: World, v: Any) -> list[Any]:
    return [
        safety.inside_its_table(world, v.p),
        safety.read_is_there(world, v.p),
        safety.cut_is_settled(world, v.t),
    ]


S6 = HeapTheorem(
    id="S6.inductive",
    sentence="Of a table whose entries are read token by token, an entry is null only where no query to come reads: "
    "from any state of any size, every move leads to one of which that is true.",
    variables=_VARIABLES,
    assume=_is_move,
    claim=_kept(_read),
    meaning="Cutting a window frees no block that the next query reads; a hit begins where it is read.",
    controls=(
        _wrong("drop", "the window is cut an entry too far", wrong_moves.dropped_too_early),
        _wrong("pad", "null entries stand where a query reads", wrong_moves.padded_anywhere),
        _wrong("cut", "a window is cut by tokens that may be taken back", wrong_moves.cut_ahead),
        _wrong("settle", "settled tokens are taken back", wrong_moves.settled_back),
    ),
)

_ENDS = ("advance", "reject", "arrive")


def _never_taken_back(f: Any, v: Any) -> Any:
    number = 0
    while v.op != number:
        number += 1
    found = f.request_after(_ENDS[number], v.n, v.computed, v.scheduled, v.sampled, v.rejected)
    if found is None:
        return True
    before, after, query = found
    return [before <= after, after <= query]


def _taken_back(kind: str, n: Any, computed: Any, scheduled: Any, sampled: Any, rejected: Any) -> Any:
    """As if drafts counted as settled."""
    before, after = computed, computed - (rejected if kind == "reject" else 0)
    legal = every(kind == "reject", rejected > 0, rejected <= computed - n)
    return (before, after, after) if legal else None


SETTLED = Theorem(
    id="S6.settled",
    sentence="What is settled is never taken back: no rejected draft, no step and no load that arrives whole lets the "
    "next query of a request stand before the tokens by which its windows were cut.",
    variables={
        "op": f"which operation: {', '.join(f'{number} {name}' for number, name in enumerate(_ENDS))}",
        "n": "known tokens",
        "computed": "computed tokens, drafts included",
        "scheduled": "tokens of the step that runs",
        "sampled": "tokens that it yields",
        "rejected": "drafts that are rejected",
    },
    assume=lambda v: [v.op >= 0, v.op <= 2, v.n >= 1, v.computed >= 0, v.scheduled >= 0, v.sampled >= 0],
    claim=_never_taken_back,
    controls=(
        NegativeControl(
            "drafts that may be rejected count as settled",
            {"request_after": _taken_back},
            assume=lambda v: [v.op == 1, v.n >= 1, v.computed >= 0],
        ),
    ),
    meaning="Asynchronous scheduling may reject drafts late: the window is still there. A load may fail in part only "
    "where what the query reads then is in blocks (`legal`).",
)

THEOREMS = (S1, S2, S4, S5, S6, SETTLED)
