"""What a theorem must have before it may be called one: checked when it is registered, and when it is settled.

A statement can be proved because it says nothing. So a claim claims something on every path; what it says under a
condition (`claims.implies`) is said of some case; and each theorem has a negative control that replaces a function of
the core, so that it is about that function, and not a rule written out once more.
"""

from collections.abc import Iterable

from .theorem import Statement, Theorem


class AuthoringError(ValueError):
    """A theorem lacks something; the message says what to add."""


def registered(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """The statements by number. AuthoringError if one of them could be proved of anything."""
    known = sorted(statements, key=lambda statement: statement.number)
    found = [f"{one.id}: {problem}" for one in known for problem in problems(one)]
    names = [one.id for one in known]
    found += [f"{name}: two theorems have this id" for name in sorted({one for one in names if names.count(one) > 1})]
    if found:
        raise AuthoringError("; ".join(found))
    return tuple(known)


def problems(statement: Statement) -> list[str]:
    """What it lacks, a line each."""
    found = [] if statement.sentence.strip() else ["say in a sentence what it claims"]
    if not isinstance(statement, Theorem):
        return found
    if not any(control.roles and control.claim is None for control in statement.controls):
        found.append(
            "add a negative control that replaces a function of the core, and not the claim (`NegativeControl.roles`)"
        )
    for control in statement.controls:
        if not (control.roles or control.claim or control.assume):
            found.append(f"negative control '{control.wrong}' changes nothing")
    wrongs = [control.wrong for control in statement.controls]
    return found + [f"two negative controls are called '{one}'" for one in sorted(set(wrongs)) if wrongs.count(one) > 1]
