"""The attention types that somebody has named."""

from ..findings.words import did_you_mean
from ..workload.shapes import ATTENTION


def attention_named(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list, all of them for `all`. ValueError, with what was meant, for an unknown one.

    The names are those of `ATTENTION`.
    """
    names = tuple(ATTENTION) if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in ATTENTION:
            raise ValueError(f"{name!r} is unknown; {did_you_mean(name, (*ATTENTION, 'all'))}")
    if not names:
        raise ValueError("an empty list leaves nothing to run; write all, or some of full, sliding, mamba, ...")
    return names
