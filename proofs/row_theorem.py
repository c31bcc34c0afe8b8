"""Settles what is claimed of a free queue that is a row of batches (`row_claims`), path by path.

As every theorem, but that what a path owes is asked of one solver where it rests on the same facts: there are many.
"""

from collections.abc import Iterator
from typing import Any

import z3

from .examples import Values, conditions, satisfiable_question, variable
from .kernel import Account, Path, Proved, each_follows
from .row_claims import RowClaim
from .solver import Obligation, ProofError, UndecidedError, example
from .symbolic import Run, term
from .symbolic_builtins import symbolic_builtins
from .theorem import Functions, Subject, UnavailableError, refuse_careless
from .verdict import Verdict
from .watched import Watched


def settle_any_length(verdict: Verdict, claim: RowClaim, subject: Subject, seconds: float, watched: Watched) -> None:
    """Prove a claim for rows of any length; the verdict is `proved`, or says why it is undecided."""
    symbols = Values({name: variable(name, meaning) for name, meaning in claim.variables.items()})
    functions = Functions(subject.find, {})
    try:
        assumptions = [condition for condition in claim.assume(symbols) if condition is not True]
        run = Run(f"{verdict.theorem} on {subject.name}", assumptions, 0, seconds)
        proofs = _Proofs(verdict, seconds)
        account = Account(run.name, run.assumptions, seconds)
        verdict.satisfiable.append(satisfiable_question(f"{run.name}: the assumptions", run.assumptions))

        def body() -> list[Any]:
            with watched:
                return conditions(claim.of(functions, symbols))

        with symbolic_builtins(subject.modules()):
            for path in run.paths(body):
                verdict.paths += 1
                path.witness = path.witness or example(path.hypotheses, seconds)
                account.enter(path, list(proofs.of(f"{run.name}: path {verdict.paths}", path)))
            refuse_careless(run.name, watched)
            proved = account.proved()
            vacuous = run.vacuous()
            if vacuous:
                raise ProofError(f"{run.name}: the condition in {vacuous}, never holds: what it implies is not said")
            verdict.status = proved
        verdict.questions = run.questions
    except ProofError as error:
        verdict.status, verdict.message = "undecided", str(error)
        verdict.smtlib += [error.smtlib] if isinstance(error, UndecidedError) else []


class _Proofs:
    """Proofs of what paths owe. What one owes at its beginning, others that begin like it owe, too."""

    def __init__(self, verdict: Verdict, seconds: float) -> None:
        self._verdict, self._seconds = verdict, seconds
        self._known: dict[int, list[tuple[set[int], Proved]]] = {}
        """By the claim, with all that was known there: how many are proved does not depend on what Z3 took of it."""

    def of(self, name: str, path: Path) -> Iterator[Proved]:
        """Proofs of what a path owes. UndecidedError for the first thing that has none."""
        if isinstance(path.error, UnavailableError):
            raise path.error
        yield from path.proofs
        for proved in path.proofs:
            self._verdict.note_proof(proved.obligation)
        if path.error is not None:
            raise ProofError(f"{name} raises {type(path.error).__name__}: {path.error}")
        owed = [one for one in path.obligations if not one.forced]
        owed += [Obligation(f"{name}, claim {i}", tuple(path.hypotheses), term(c)) for i, c in enumerate(path.value)]
        groups: dict[int, list[Obligation]] = {}
        for one in owed:
            known = self._found(one)
            if known is not None:
                yield known
            elif not z3.is_true(z3.simplify(one.claim)):
                groups.setdefault(len(one.hypotheses), []).append(one)
        for together in groups.values():
            found = each_follows(name, together[0].hypotheses, [one.claim for one in together], self._seconds)
            for one, new in zip(together, found, strict=False):
                if new is None:
                    raise UndecidedError(f"{one.name}: it does not follow", one.smtlib())
                self._verdict.note_proof(new.obligation)
                self._known.setdefault(one.claim.get_id(), []).append((_identities(one), new))
                yield new

    def _found(self, owed: Obligation) -> Proved | None:
        """A proof from a path before, on which nothing was known that is not known here."""
        known = self._known.get(owed.claim.get_id(), ())
        here = _identities(owed) if known else set()
        return next((proved for then, proved in known if then <= here), None)


def _identities(owed: Obligation) -> set[int]:
    return {one.get_id() for one in owed.hypotheses}
