"""What the shell completes in the arguments of a command: names of targets, planted faults, attention types, oracles.

Each function gets the argument typed so far, and gives those that it may become.
"""

import os
import re
from collections.abc import Iterable, Iterator
from glob import escape, glob
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..faults import Part

_CUTS = (":", "=", "==")
"""Where bash cuts an argument into several words."""
_ENDS_WORDS = r"[^\w./:~=@%+-]"
"""Characters that a shell wants to have quoted."""
_BEFORE = "_BLOCKPROOF_BEFORE_CURSOR_WORD"
MOST_BYTES = 2**20
"""How much of a file is searched for factories."""


def target_names(incomplete: str) -> list[str]:
    """Our core, engines, installed releases, factories in files that begin like this and, once `f` is typed, the faults
    planted in our core."""
    from ..faults import Part

    return _targets(incomplete, Part.CORE)


def calculator_names(incomplete: str) -> list[str]:
    """The same for commands that ask about configurations, with the faults planted in their answers."""
    from ..faults import Part

    return _targets(incomplete, Part.CONFIGURATION)


def _targets(incomplete: str, part: "Part") -> list[str]:
    from ..adapters import families
    from ..adapters.impl import CORES
    from ..faults import faults_in

    faults = [f"fault:{name}" for name in faults_in(part)]
    begun = f"{os.environ.get(_BEFORE, '')}{incomplete}".startswith("f")
    names = [*CORES, *families(), *_installed(), *(faults if begun else ["fault:"])]
    return [*_fitting(names, incomplete), *_own_files(incomplete)]


def _own_files(incomplete: str) -> Iterator[str]:
    """Factories (functions without arguments) in Python files whose path begins like this, and folders on the way.

    For bash without the part that it takes for words of its own, and with a backslash before what would end the word;
    it completes folders by itself.
    """
    before, in_bash = os.environ.get(_BEFORE, ""), os.environ.get("_BLOCKPROOF_COMPLETE") == "complete_bash"
    path, in_file, begun = f"{before}{incomplete}".replace("\\", "").partition(".py:")
    begin = os.path.expanduser(path)
    for found in sorted(glob(f"{escape(begin)}{'.py' if in_file else '*'}")) if path else ():
        shown = path + found[len(begin) :]
        names = [f"{shown}/"] if os.path.isdir(found) and not in_bash else []
        if found.endswith(".py"):
            names = [f"{shown}:{factory}" for factory in _factories(found) if factory.startswith(begun)]
        yield from (re.sub(_ENDS_WORDS, r"\\\g<0>", name).removeprefix(before) if in_bash else name for name in names)


def _factories(path: str) -> list[str]:
    """Names of the functions without arguments in a file, those of a target first if they are called as usual."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            names = re.findall(r"^def ([A-Za-z]\w*)\(\)", file.read(MOST_BYTES), re.MULTILINE)
    except OSError:
        return []
    return sorted(names, key=lambda name: name != "make_target")


def mutant_names(incomplete: str) -> list[str]:
    """The planted faults that `blockproof mutants` hunts."""
    from ..engines.mutants import MUTANTS

    return _fitting(MUTANTS, incomplete)


def installed_names(incomplete: str) -> list[str]:
    """The releases that are installed."""
    return _fitting(_installed(), incomplete)


def _installed() -> list[str]:
    from ..opening.environments import installed

    return [environment.name for environment in installed()]


def release_names(incomplete: str) -> list[str]:
    """Every release of an engine that is known to work."""
    from ..adapters import families

    return _fitting([one.spec(version) for one in families().values() for version in one.releases], incomplete)


def attention_lists(incomplete: str) -> list[str]:
    """A comma-separated list of attention types, with its last name completed."""
    from ..workload.shapes import EVERY_ATTENTION

    return _fitting([*_lists(incomplete, EVERY_ATTENTION), "all"], incomplete)


def oracle_lists(incomplete: str) -> list[str]:
    """A comma-separated list of oracles, with its last name completed."""
    from ..findings.oracle_names import ADDITIONS, EVERY

    return _fitting([*_lists(incomplete, (*EVERY, *ADDITIONS)), "all", "auto"], incomplete)


def _lists(incomplete: str, names: Iterable[str]) -> list[str]:
    """The list with each name as its last; a name that is in it already is not offered again."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name not in before.split(",")]


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    """Those that begin with what is typed; without the part that bash takes for words of its own."""
    before = os.environ.get(_BEFORE, "")
    return [name.removeprefix(before) for name in names if name.startswith(before + incomplete)]


def rejoin_bash_words() -> None:
    """Put an argument together again that bash has cut: `fault:name` and `engine==1.2.0` reach us as three words.

    Bash replaces only the last of them, so that what comes before it is left out of what is typed, and of the answer.
    """
    words, place = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    begin = place
    while words[place] and begin > 1 and (words[begin] in _CUTS or words[begin - 1] in _CUTS):
        begin -= 1
    typed, options = "".join(words[begin : place + 1]), []
    if typed.startswith("--") and "=" in typed:
        option, _, typed = typed.partition("=")
        options = [option]
    last = "" if words[place] in _CUTS else words[place]
    os.environ[_BEFORE] = typed.removesuffix(last)
    rest = [*words[:begin], *options, last]
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(rest), str(len(rest) - 1)
