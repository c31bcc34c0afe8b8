"""All paths of a function that runs on symbols: what was answered on each, and what must be proved for it.

Where Python asks whether a condition holds, the run forks: the function is executed again for each combination of
answers that is possible. An answer is left out only with a proof that it is impossible.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, TypeAlias

import z3

from .kernel import Path, follows, formula
from .solver import Obligation, ProofError, UndecidedError, has_product, solve

Site: TypeAlias = tuple[CodeType, int, int]
"""A place in code: the function, the instruction, the line."""
MET: list[tuple[list[z3.BoolRef], z3.BoolRef]] = []
"""Of the condition of an implication: it holds somewhere."""
ANTECEDENTS_MOST = 60
"""So many paths are asked whether it holds there."""
DECISIONS_MOST = 400
"""Questions on one path: a run that asks more does not end, as far as we can tell."""
PATHS_MOST = 20_000


class Run:
    """All paths of one function under some assumptions."""

    def __init__(self, name: str, assumptions: Sequence[Any], unroll: int = 0, seconds: float = 5.0) -> None:
        """`unroll`: most rounds of a loop whose length is symbolic; `seconds`: for each question to the solver."""
        self.rounding = False
        """May true division be taken for exact? A theorem that says so says why it does no harm."""
        self.name = name
        self.assumptions = [formula(assumption) for assumption in assumptions]
        self.unroll = unroll
        self.seconds = seconds
        self.questions = 0
        self._path = Path([])
        self._planned: Sequence[bool] = ()
        self._open: list[list[bool]] = []
        self._names = 0
        self._case = _Case()
        self._cases: dict[tuple[bool, ...], z3.ModelRef | None] = {}
        """Values that lead to these answers, for paths that are open."""
        self._antecedents: dict[Site, list[tuple[list[z3.BoolRef], z3.BoolRef]]] = {}
        """By the place where it stands: where the condition of an implication was not seen to hold, with what is known
        there; nothing more once it was."""
        self._errors: list[tuple[BaseException, str]] = []
        self._left: list[BaseException] = []
        self._text_made = ""
        self._supposed: list[tuple[Site, z3.BoolRef]] = []
        self._laws: dict[int, z3.BoolRef] = {}
        self._defined: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = {}

    def paths(self, body: Callable[[], Any]) -> Iterator[Path]:
        """Execute `body` along every possible path. ProofError if one cannot be followed to its end.

        When all are done, the first is executed once more: if it is not the same again, something that one execution
        leaves behind (a global, a default argument, a cache) is seen by the next, and none is any argument's own.
        """
        self._open, ProofError.shown = [[]], False
        first, done = None, 0
        while self._open:
            path = self._execute(self._open.pop(), body)
            first = first or path
            done += 1
            if done > PATHS_MOST:
                raise ProofError(f"{self.name}: more than {PATHS_MOST:,} paths: assume more, or split the theorem")
            yield path
        if first is not None and _came_to(self._execute(first.decisions, body)) != _came_to(first):
            raise ProofError(f"{self.name}: the first path is another when it is run again: what is run has a state")

    def _execute(self, planned: Sequence[bool], body: Callable[[], Any]) -> Path:
        """One path, with the first answers as planned."""
        self._planned = planned
        self._path = path = Path(list(self.assumptions))
        self._names = 0
        self._defined, self._supposed, self._errors, self._left, self._text_made = {}, [], [], [], ""
        self._case = _Case(self._cases.pop(tuple(planned), None))
        ProofError.latest = None
        try:
            with executing(self):
                path.value = body()
        except ProofError:
            raise
        except Exception as error:
            path.error = error
        if ProofError.latest is not None:  # the function has caught it
            raise ProofError.latest
        self._require_left(path)
        path.witness = self.case()
        self._note_antecedents(path)
        return path

    def knows_error(self, error: BaseException) -> bool:
        """Whether it was looked at already on this path."""
        return any(known is error for known, _ in self._errors)

    def note_error(self, error: BaseException, where: str) -> None:
        """Note an exception that passes code under proof; `where` it was raised if a symbol may be the cause."""
        self._errors.append((error, where))

    def tell(self, where: str) -> None:
        """Note that a text of a symbol was made, for a message: it must leave the function under proof."""
        self._text_made = self._text_made or where

    def forgive_text(self) -> None:
        """The text was for somebody else: a log, or an exception that has left the function under proof."""
        self._text_made = ""

    def _require_left(self, path: Path) -> None:
        """ProofError if an exception that a symbol may have caused was swallowed, or one that has the text of one."""
        for error, where in self._errors:
            if where and error is not path.error and not self._is_left(error):
                kind = type(error).__name__
                raise ProofError(f"{where}: goes on after {kind}: a symbol may raise where a number does not")
        if self._text_made and path.error is None:
            where = self._text_made
            raise ProofError(f"{where}: a text of a symbol is made and kept: a symbol may read as no number does")

    def _is_left(self, error: BaseException) -> bool:
        return any(known is error for known in self._left)

    def leave(self, error: BaseException) -> None:
        """An exception has left the function under proof, and is what is claimed of it."""
        if not any(known is error and where for known, where in self._errors):
            self._left.append(error)
        self.forgive_text()

    def suppose(self, site: Site, condition: z3.BoolRef) -> None:
        """The condition of an implication that stands there: it must hold somewhere, or nothing is said."""
        self._supposed.append((site, condition))

    def _note_antecedents(self, path: Path) -> None:
        for site, condition in self._supposed:
            unmet = self._antecedents.setdefault(site, [])
            if unmet is MET:
                continue
            witness = path.witness
            if z3.is_true(condition) or (witness and z3.is_true(witness.eval(condition, model_completion=True))):
                self._antecedents[site] = MET
            elif len(unmet) < ANTECEDENTS_MOST and not z3.is_false(condition):
                unmet.append((list(path.hypotheses), condition))
        self._supposed = []

    def vacuous(self, met: Collection[Site] = ()) -> str:
        """Where an implication stands whose condition holds on no path; empty if there is none. `met`: those of which
        it is known that it does."""
        for site, unmet in self._antecedents.items():
            if unmet is MET or site in met:
                continue
            if not any(solve([*known, condition], self.seconds)[0] == "sat" for known, condition in unmet):
                code, line = site[0], site[2]
                return f"{code.co_qualname}, {code.co_filename.rpartition('/')[2]} line {line}"
        return ""

    def decide(self, condition: z3.BoolRef) -> bool:
        """The answer to a question of the running function; the other one, if possible, is taken later."""
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        path = self._path
        if condition.get_id() in path.answered:
            return path.answered[condition.get_id()]
        step = len(path.decisions)
        if step >= DECISIONS_MOST:
            raise ProofError(f"{self.name}: more than {DECISIONS_MOST} questions on one path: a loop without bound?")
        if step < len(self._planned):
            answer = self._planned[step]
        else:
            forced = self._forced(condition)
            answer = forced is not False
            if forced is not None:
                path.forced.add(step)
            else:
                self._open.append([*path.decisions, False])
        path.decisions.append(answer)
        path.asked.append(condition)
        path.hypotheses.append(condition if answer else z3.Not(condition))
        path.answered[condition.get_id()] = answer
        return answer

    def case(self) -> z3.ModelRef | None:
        """Values that satisfy all that the current path has assumed and answered, if they are known already."""
        return self._case.model(self._path.hypotheses)

    def lemma(self, claim: z3.BoolRef, name: str) -> None:
        """An intermediate result: to be proved from what is known here, and known from here on."""
        self._oblige(f"lemma {name}".strip(), claim)
        self._path.hypotheses.append(claim)

    def require(self, claim: z3.BoolRef, name: str) -> None:
        """Something to be proved from what is known here."""
        self._oblige(name, claim)

    def law(self, name: str, claim: z3.BoolRef, *instances: z3.BoolRef) -> None:
        """Something to be proved without any hypothesis, but for what other laws of this run say of some values."""
        if claim.get_id() not in self._laws:
            self._laws[claim.get_id()] = claim  # kept, so that no other term gets its identity
            self._path.obligations.append(Obligation(f"{self.name}: law {name}", instances, claim))

    def use(self, instance: z3.BoolRef) -> None:
        """Know what a law says of some values."""
        self._path.hypotheses.append(instance)

    def assume(self, condition: z3.BoolRef) -> None:
        """Define a name made by `fresh_name`: whatever else holds, such a value exists (say why where it is used)."""
        self._path.hypotheses.append(condition)
        self._path.assumed = True

    def once(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """What `make` gave when it was first called for this key on this path.

        Terms in a key are told apart by what they are, never by how they are printed: Z3 shortens long ones.
        """
        identity = _identity(key)
        if identity not in self._defined:
            self._defined[identity] = key, make()  # the key is kept, so that no other term gets the identity of one
        return self._defined[identity][1]

    def knows(self, key: tuple[object, ...]) -> bool:
        """True if `once` was called for this key on this path."""
        return _identity(key) in self._defined

    def fresh_name(self, stem: str) -> str:
        """A name that no other symbol of this path has; the same one whenever the path is run again."""
        self._names += 1
        return f"{stem}!{self._names}"

    def _oblige(self, name: str, claim: z3.BoolRef) -> None:
        path = self._path
        path.obligations.append(Obligation(self._where(name), tuple(path.hypotheses), claim))

    def _where(self, name: str) -> str:
        taken = "".join("TF"[not answer] for answer in self._path.decisions)
        return f"{self.name}: {name} after {taken or 'no'} decisions"

    def _forced(self, condition: z3.BoolRef) -> bool | None:
        """The only possible answer, with an obligation that says so; None if both are possible.

        Hypotheses without products are tried first: they mostly suffice, and a solver is quick with them. What a case
        of this path shows to be possible is not asked; a wrong case could only leave in an answer that is impossible.
        """
        possible = self._case.answer(self._path.hypotheses, condition)
        cases = {possible: self._case.model(self._path.hypotheses)}
        whole = tuple(self._path.hypotheses)
        light = whole if has_product(condition) else tuple(one for one in whole if not has_product(one))
        for hypotheses in (light, whole) if len(light) < len(whole) else (whole,):
            for answer, claim in ((False, z3.Not(condition)), (True, condition)):
                if possible is not None and answer is not possible:
                    continue
                self.questions += 1
                obligation = Obligation(self._where("forced"), hypotheses, claim, forced=True)
                proved, model = follows(obligation, self.seconds)
                if proved is not None:
                    self._path.obligations.append(obligation)
                    self._path.proofs.append(proved)
                    return answer
                if model is None:
                    message = f"{self.name}: cannot decide whether {condition} is possible"
                    raise UndecidedError(message, obligation.smtlib())
                if hypotheses is whole:
                    cases[not answer] = model
        self._case = _Case(cases[True], len(whole))  # the path goes on with True, and another one with False
        self._cases[(*self._path.decisions, False)] = cases[False]
        return None


def _came_to(path: Path) -> tuple[object, ...]:
    """What a path assumed, was asked and came to, as far as it can be compared: terms by their identity."""
    values = path.value if isinstance(path.value, list | tuple) else [path.value]
    known = [one.get_id() for one in path.hypotheses]
    terms = [getattr(one, "term", one) for one in values]
    came_to = [one.get_id() if isinstance(one, z3.AstRef) else one if type(one) is bool else None for one in terms]
    return known, path.decisions, type(path.error), came_to


class _Case:
    """Values that satisfy so many of a path's hypotheses; none at first."""

    def __init__(self, model: z3.ModelRef | None = None, known: int = 0) -> None:
        self._model, self._known = model, known

    def answer(self, hypotheses: Sequence[z3.BoolRef], condition: z3.BoolRef) -> bool | None:
        """Whether the condition holds in this case; None if it does not satisfy the hypotheses, or cannot say."""
        model = self.model(hypotheses)
        if model is None:
            return None
        value = model.eval(condition, model_completion=True)
        return True if z3.is_true(value) else False if z3.is_false(value) else None

    def model(self, hypotheses: Sequence[z3.BoolRef]) -> z3.ModelRef | None:
        """The case, if it satisfies all hypotheses."""
        new, self._known = hypotheses[self._known :], len(hypotheses)
        if self._model is None or not all(z3.is_true(self._model.eval(one, model_completion=True)) for one in new):
            self._model = None
        return self._model


def _identity(key: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(("term", part.get_id()) if isinstance(part, z3.AstRef) else part for part in key)


_current: Run | None = None


def running() -> Run:
    """The run that is executing a function now. ProofError if there is none."""
    if _current is None:
        raise ProofError("a symbolic value is asked for its truth outside a run: use Run.paths")
    return _current


def under_way() -> bool:
    """True while a run executes a function."""
    return _current is not None


@contextmanager
def executing(run: Run) -> Iterator[None]:
    """While it lasts, `running` is this run."""
    global _current
    outer, _current = _current, run
    try:
        yield
    finally:
        _current = outer
