"""The only place where something is called proved. Whoever wants to know what a proof rests on reads this file.

All the rest of the package looks for proofs and may go about it as it likes: what it hands in is checked here. A claim
counts only with a `Proved`, which nothing but `follows` and `each_follows` makes, when Z3 has answered `unsat`. A
statement is proved (`Account.proved`) if

* its assumptions can be satisfied, and so can everything that was assumed on each path,
* something is claimed,
* the paths cover all cases: wherever a path answered a question, another path answered the other way, or the other
  answer was proved impossible,
* every claim of every path is proved from what was assumed and answered there, or from some of it.

Trusted, and not checked here, is what `TRUSTED` lists, each entry with the test that attacks it. What was tried on
every case of a small scope, and not derived, goes through `exhausted`, with a record of each case (`Evidence`), and
must say what bounds it.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import z3

from .solver import Obligation, ProofError, assert_all, forget_course, limit, solve


class Trusted(NamedTuple):
    """Something that a proof rests on and the kernel does not check."""

    what: str
    modules: tuple[str, ...]
    """Those of this package that do it; a folder stands for all in it. How many lines they have, `trust` counts."""
    test: str
    """What in tests/proofs attacks it."""


_MADE_OF_LOOPS = ("rounds", "induction", "pool", "pool_parts", "listings", "start")
TRUSTED: Final = tuple(
    Trusted(*one)
    for one in (
        ("Z3 answers `unsat` only where nothing satisfies; cvc5 is asked the same", ("solver",), "test_judgement.py"),
        ("arithmetic, comparisons and truth of symbols are Python's", ("symbolic",), "test_symbolic.py"),
        ("the words of claims say what they say", ("claims", "examples"), "test_symbolic.py"),
        ("what symbols cannot do truly is refused, and a caught refusal counts", ("refusal",), "test_refusals.py"),
        ("what code under proof calls asks symbols and nothing else", ("guard",), "test_attacks.py"),
        ("no other error that only a symbol raises is caught", ("guard", "handlers"), "test_attacks.py"),
        ("runs on plain numbers leave nothing behind, as far as can be looked", ("state",), "test_attacks.py"),
        (
            "what is run again does the same again, as far as its first path shows",
            ("symbolic_run",),
            "test_kernel.py",
        ),
        (
            "`range`, `len`, `type`, `id`, `gcd` as code under proof sees them",
            ("symbolic_builtins",),
            "test_refusals.py",
        ),
        ("quotients of their own by a positive divisor", ("quotients",), "test_refusals.py"),
        ("block tables of any length", ("symbolic_table",), "test_symbolic_table.py"),
        ("byte strings and names", ("symbolic_bytes",), "test_symbolic_bytes.py"),
        ("linked blocks", ("heap", "free_list", "pool_scene"), "test_heap.py"),
        ("a pool over a queue of batches", ("batch_pool",), "test_theorems_free_queue.py"),
        ("a loop cut into its parts is the loop", ("loops",), "test_loops.py"),
        (
            "loops one behind the other, and pools at any moment of them",
            (
                *(f"invariants.{name}" for name in _MADE_OF_LOOPS),
                "theorems.invariants_pool",
                "theorems.invariants_names",
            ),
            "test_invariants_pool.py",
        ),
        (
            "moves of a core, in symbols",
            ("invariants.moves", "invariants.symbolic_world", "theorems.invariants"),
            "test_invariants.py",
        ),
        ("roles bind each name to the function of the core that plays it", ("roles",), "test_roles.py"),
        ("`is` as the code under proof asks it", ("identity",), "test_refusals.py"),
        ("all of it together, on functions and claims drawn at random", (), "test_fuzzing.py"),
    )
)
"""What a proof rests on besides this file."""


class Proved:
    """A claim that follows from its hypotheses."""

    __slots__ = ("_obligation",)

    def __init__(self, obligation: Obligation, key: object) -> None:
        if key is not _KEY:
            raise ProofError(f"{obligation.name}: only the kernel calls something proved")
        self._obligation = obligation

    @property
    def obligation(self) -> Obligation:
        """What was proved."""
        return self._obligation


_KEY: Final = object()


def follows(obligation: Obligation, seconds: float) -> tuple[Proved | None, z3.ModelRef | None]:
    """The proof, or a model in which the claim fails although the hypotheses hold; neither if Z3 cannot say."""
    status, model = solve([*obligation.hypotheses, z3.Not(obligation.claim)], seconds)
    return (Proved(obligation, _KEY) if status == "unsat" else None), model


def each_follows(
    name: str, hypotheses: Sequence[Any], claims: Sequence[Any], seconds: float
) -> Iterator[Proved | None]:
    """The proof of each claim from those hypotheses that it takes, with one solver for all; None, and no more, for the
    first that has none."""
    solver = z3.SimpleSolver()
    limit(solver, seconds)
    switches = [z3.Bool(f"hypothesis {number}") for number in range(len(hypotheses))]
    assert_all(solver, [z3.Implies(switch, one) for switch, one in zip(switches, hypotheses, strict=True)])
    for number, claim in enumerate(claims):
        if solver.check(*switches, z3.Not(claim)) != z3.unsat:
            yield None
            return
        core = {part.get_id() for part in solver.unsat_core()}
        needed = tuple(one for switch, one in zip(switches, hypotheses, strict=True) if switch.get_id() in core)
        yield Proved(Obligation(f"{name}, claim {number}", needed, claim), _KEY)


@dataclass
class Path:
    """One way through the function: what was assumed and answered, what it came to, what must be proved for it."""

    hypotheses: list[z3.BoolRef]
    obligations: list[Obligation] = field(default_factory=list)
    proofs: list[Proved] = field(default_factory=list)
    """Of those obligations that say that an answer is impossible."""
    forced: set[int] = field(default_factory=set)
    """Questions, by number, of which one answer is impossible."""
    assumed: bool = False
    """True if anything was assumed on the way (`Run.assume`)."""
    witness: z3.ModelRef | None = None
    """Values that may satisfy all hypotheses, if some are known: the kernel tries them before it asks for any."""
    value: Any = None
    error: Exception | None = None
    """What the function raised; then there is no value."""
    decisions: list[bool] = field(default_factory=list)
    asked: list[z3.BoolRef] = field(default_factory=list)
    """What each decision is the answer to."""
    answered: dict[int, bool] = field(default_factory=dict)
    """The same by the identity of the condition's term, which the hypotheses keep alive: asked again, it is known."""


_Leaf: TypeAlias = tuple[tuple[int, bool], ...]
"""Each question of a path, by its identity, and its answer."""


def _other(answer: tuple[int, bool]) -> tuple[int, bool]:
    """The other answer to the same question."""
    return answer[0], not answer[1]


def formula(condition: Any) -> Any:
    """The term of a plain or symbolic condition."""
    return z3.BoolVal(condition) if type(condition) is bool else condition.term


class Account:
    """What a statement about one core owes, and what of it is proved."""

    def __init__(self, name: str, assumptions: Sequence[Any], seconds: float) -> None:
        """ProofError if the assumptions cannot be satisfied, as far as Z3 can say."""
        self._name, self._seconds = name, seconds
        self._leaves: dict[_Leaf, frozenset[int]] = {}
        self._claims = 0
        self._asked: list[z3.BoolRef] = []
        """Kept, so that no other question gets the identity of one."""
        forget_course()
        self._satisfiable("the assumptions", assumptions)

    def enter(self, path: Path, proofs: Sequence[Proved], granted: Sequence[Any] = ()) -> None:
        """Enter a path, of which some answers may have been taken for granted so far: they are owed, too. ProofError if
        something that it owes is not among the proofs."""
        found: dict[int, list[Obligation]] = {}
        for proof in proofs:
            found.setdefault(proof.obligation.claim.get_id(), []).append(proof.obligation)
        claims = [False] if path.error is not None else path.value
        self._claims += len(claims)
        claimed = [*granted, *map(formula, claims)]
        owed = [*path.obligations, *(Obligation("a claim", tuple(path.hypotheses), claim) for claim in claimed)]
        for one in owed:
            known = {formula.get_id() for formula in one.hypotheses}
            usable = (proved.hypotheses for proved in found.get(one.claim.get_id(), ()))
            proved = any(all(formula.get_id() in known for formula in used) for used in usable)
            if not proved and not z3.is_true(z3.simplify(one.claim)):
                raise ProofError(f"{self._name}: {one.name} is not proved")
        if path.assumed:
            self._satisfiable(f"what was assumed on path {len(self._leaves) + 1}", path.hypotheses, path.witness)
        self._asked += path.asked
        answers = zip((question.get_id() for question in path.asked), path.decisions, strict=True)
        self._leaves[tuple(answers)] = frozenset(path.forced)

    def proved(self) -> Literal["proved"]:
        """The status of a statement of which every path has been entered. ProofError if some case is missing."""
        ways = {leaf[:length] for leaf in self._leaves for length in range(len(leaf) + 1)}
        ways |= {(*leaf[:step], _other(leaf[step])) for leaf, forced in self._leaves.items() for step in forced}
        for leaf in self._leaves:
            for step, answer in enumerate(leaf):
                if (*leaf[:step], _other(answer)) not in ways:
                    raise ProofError(f"{self._name}: question {step + 1} of a path was not answered the other way")
        if not ways or not self._claims:
            raise ProofError(f"{self._name}: {'nothing is claimed on any path' if ways else 'no path was entered'}")
        return "proved"

    def _satisfiable(self, what: str, formulas: Sequence[Any], witness: z3.ModelRef | None = None) -> None:
        if witness is not None and all(z3.is_true(witness.eval(one, model_completion=True)) for one in formulas):
            return
        status, _ = solve(formulas, self._seconds)
        if status != "sat":
            raise ProofError(f"{self._name}: {what}: {status} together: a statement about nothing")


class Evidence:
    """What was tried: every case by itself, each once. Made while the cases run, and asked for by `exhausted`."""

    __slots__ = ("_cases", "_covered", "_failed")

    def __init__(self) -> None:
        self._cases: set[bytes] = set()
        self._covered = 0
        self._failed = ""

    def tried(self, case: object, right: bool = True, covers: int = 1) -> None:
        """Record a case by what it prints, and whether the claim held; `covers`: for how many this one stands.

        ProofError for one that was recorded before: counted twice, it would seem to be two.
        """
        mark = hashlib.blake2b(repr(case).encode(), digest_size=16).digest()
        if mark in self._cases or covers < 1:
            raise ProofError(f"a case is recorded twice, or stands for none: {case}")
        self._cases.add(mark)
        self._covered += covers
        if not right:
            self._failed = self._failed or str(case)

    @property
    def cases(self) -> int:
        """How many were recorded, each with those that it stands for."""
        return self._covered

    @property
    def run(self) -> int:
        """How many were run."""
        return len(self._cases)

    @property
    def failed(self) -> str:
        """The first case in which the claim did not hold; empty if there is none."""
        return self._failed

    @property
    def digest(self) -> str:
        """The same for the same cases, in whichever order: 16 hexadecimal digits."""
        return hashlib.sha256(b"".join(sorted(self._cases))).hexdigest()[:16]


def exhausted(name: str, evidence: Evidence, bounded: str) -> Literal["proved"]:
    """The status of a statement that held in every case of a scope. ProofError without recorded cases, with one that
    failed, or without a word about what bounds them."""
    if type(evidence) is not Evidence or not evidence.run:
        raise ProofError(f"{name}: there is no record of a case that was tried")
    if evidence.failed:
        raise ProofError(f"{name}: it does not hold of {evidence.failed}")
    if not bounded.strip():
        raise ProofError(f"{name}: it is not said what bounds the cases")
    return "proved"
