"""The second opinion: cvc5 reads each obligation as SMT-LIB and must come to the same answer."""

import re
from collections.abc import Sequence

_COMMAND = re.compile(r"^\((?=(?:set-logic|set-info|declare-fun|assert|check-sat)\b)", re.MULTILINE)


def together(questions: Sequence[str]) -> str:
    """One question for several that Z3 wrote: `unsat` if each of them is. Empty if one name means two things in them,
    or one has another form."""
    declared: dict[str, str] = {}
    parts: list[str] = []
    for text in questions:
        asserted: list[str] = []
        for command in _COMMAND.split(text)[1:]:
            word, _, rest = command.strip().removesuffix(")").partition(" ")
            if word == "declare-fun":
                name = rest.split("|")[1] if rest.startswith("|") else rest.partition(" ")[0]
                if declared.setdefault(name, rest) != rest:
                    return ""
            elif word.split()[0] == "assert":
                asserted.append(command.strip().removesuffix(")").removeprefix("assert"))
        if not asserted:
            return ""
        parts.append(f"(and true {' '.join(asserted)})")
    known = "\n".join(f"(declare-fun {rest})" for rest in declared.values())
    either = "\n".join(parts)
    head = f"; {len(parts)} questions: unsat if each is\n(set-logic ALL)"
    return f"{head}\n{known}\n(assert (or false {either}))\n(check-sat)\n"


STEPS = 300_000
"""Of cvc5 in about a second. A limit in steps gives the same answer on a slow machine, and on a busy one."""


def second_opinion(smtlib: str, seconds: float = 5.0) -> str:
    """What cvc5 says to one question in SMT-LIB 2: `sat`, `unsat` or `unknown`, after as many steps as it makes in
    about so many seconds."""
    import cvc5

    solver = cvc5.Solver()
    solver.setOption("rlimit-per", str(max(1, int(seconds * STEPS))))
    return _ask(cvc5, solver, smtlib)


def _ask(cvc5: object, solver: object, smtlib: str) -> str:
    parser = cvc5.InputParser(solver)  # type: ignore[attr-defined]
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, smtlib, "obligation")  # type: ignore[attr-defined]
    symbols = parser.getSymbolManager()
    answer = "unknown"
    while not (command := parser.nextCommand()).isNull():
        said = command.invoke(solver, symbols).strip()
        if said in ("sat", "unsat", "unknown"):
            answer = said
    return answer
