"""The second opinion: cvc5 reads each obligation as SMT-LIB and must come to the same answer."""


def second_opinion(smtlib: str, seconds: float = 5.0) -> str:
    """What cvc5 says to one question in SMT-LIB 2: `sat`, `unsat` or `unknown`.

    A question that it cannot settle as it stands within half of the time is asked again with another way to
    treat products.
    """
    import cvc5

    for options in ({}, {"nl-ext-tplanes": "true"}):
        solver = cvc5.Solver()
        solver.setOption("tlimit-per", str(max(1, int(seconds * 500))))
        for name, value in options.items():
            solver.setOption(name, value)
        answer = _ask(cvc5, solver, smtlib)
        if answer in ("sat", "unsat"):
            return answer
    return "unknown"


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
