"""What the shell completes in the arguments of a command: names of targets, attention types, oracles.

Each function gets the text typed so far and gives the whole arguments that begin with it.
"""

from collections.abc import Iterable, Iterator


def target_names(incomplete: str) -> list[str]:
    """Our core, engines, installed releases and, once `fault:` is begun, the planted faults."""
    from ..adapters import families

    names = ["impl", *families(), *installed_names("")]
    names += [f"fault:{name}" for name in fault_names("")] if incomplete[:1] == "f" else ["fault:"]
    return [name for name in names if name.startswith(incomplete)]


def fault_names(incomplete: str) -> list[str]:
    """The planted faults."""
    from ..faults import FAULTS

    return [name for name in FAULTS if name.startswith(incomplete)]


def installed_names(incomplete: str) -> list[str]:
    """The releases that are installed."""
    from ..opening.environments import installed

    return [environment.name for environment in installed() if environment.name.startswith(incomplete)]


def release_names(incomplete: str) -> list[str]:
    """Every release of an engine that is known to work."""
    from ..adapters import families

    specs = [family.spec(version) for family in families().values() for version in family.releases]
    return [spec for spec in specs if spec.startswith(incomplete)]


def attention_lists(incomplete: str) -> list[str]:
    """A comma-separated list of attention types, with its last name completed."""
    from ..workload.shapes import ATTENTION

    return [*_lists(incomplete, ATTENTION), *_alone(incomplete, "all")]


def oracle_lists(incomplete: str) -> list[str]:
    """A comma-separated list of oracles, with its last name completed."""
    from ..findings.oracle_names import EVERY, STRICT

    return [*_lists(incomplete, (*EVERY, STRICT)), *_alone(incomplete, "all", "auto")]


def _lists(incomplete: str, names: Iterable[str]) -> Iterator[str]:
    """The list with its last name completed; a name that is in it already is not offered again."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return (f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in taken)


def _alone(incomplete: str, *words: str) -> Iterator[str]:
    """Words that stand for a whole list."""
    return (word for word in words if word.startswith(incomplete))
