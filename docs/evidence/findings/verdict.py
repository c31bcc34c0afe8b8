"""What a script says of its finding, and how it exits."""

import sys
from collections.abc import Callable


def tell(
    engine: Callable[[], str], case: Callable[[], tuple[str, str, bool]], fix: Callable[[], None] = lambda: None
) -> None:
    """Prints which engine it is, what `case` expects, what happens, and whether the defect shows; exits with 1 if it
    does, 0 if it does not, and 3 if the case could not be tried. With `--fixed`, `fix` changes the engine before."""
    fixed = "--fixed" in sys.argv
    try:
        print(f"{engine()}{', with the change' if fixed else ''}", flush=True)
        if fixed:
            fix()
        expected, happened, shows = case()
    except Exception as error:
        print(f"could not be tried: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        sys.exit(3)
    print(f"expected: {expected}\nhappened: {happened}")
    print("the defect shows" if shows else "the defect does not show", flush=True)
    sys.exit(int(shows))
