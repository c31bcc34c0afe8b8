"""The pages that say what a user gains over the reference name each of its deviations, and no other."""

import re

from blockproof.fuzz.opening.known_deviations import known_of

from .pages import DOCS

REFERENCE = "vllm==0.23.0"
NOT_OF_ARITHMETIC = {"C-01", "S-14", "S-17", "S-18"}
"""Of section 16, but no questions that both answer: they are tested one by one."""


def marks(text):
    """What stands in code style and looks like an id: words joined by hyphens, or a letter with a number."""
    return set(re.findall(r"`([a-z]+(?:-[a-z]+)+|[SC]-\d\d)`", text))


def ids():
    known = known_of(REFERENCE)
    assert known is not None
    return {one.id for one in known.deviations}, {one.id for one in known.configuration_deviations}


def test_gains_name_every_deviation_and_no_other():
    core, arithmetic = ids()
    page = (DOCS / "reference" / "gains.md").read_text(encoding="utf-8")
    assert marks(page) == core | arithmetic | NOT_OF_ARITHMETIC


def test_the_chapter_of_the_core_names_every_deviation_of_the_core_and_no_other():
    core, _ = ids()
    page = (DOCS / "reference" / "core.md").read_text(encoding="utf-8")
    assert marks(page.partition("## What 0.23.0 does otherwise")[2]) == core
