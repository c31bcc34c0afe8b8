"""`blockproof prove --list`. The theorems themselves need a solver to be imported; where there is none, their pages are
read, which come with the package.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from .options import known_or_usage

PAGES = Path("docs/reference/theorems")
_THEOREM = re.compile(
    r"^## (?P<id>[A-Z]\d\S*)\n\n(?P<sentence>.+?)\n\n(```python\n(?P<code>.*?)\n```|(?P<words>.+?)\n\n)", re.M | re.S
)


def print_theorems(ids: Sequence[str], as_json: bool) -> None:
    """List the theorems of these names, all without any, from their pages. BadParameter for a name that none has."""
    from ..planning.shipped import shipped

    pages = (path.read_text(encoding="utf-8") for path in sorted(shipped(PAGES).glob("*.md")))
    every = [_read(match) for text in pages for match in _THEOREM.finditer(text)]
    every.sort(key=lambda one: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", one["id"])])
    names = {name: None for one in every for name in (one["id"].partition(".")[0], one["id"])}
    known_or_usage("no theorem", ids, names, "see blockproof prove --list")
    chosen = [one for one in every if not ids or one["id"] in ids or one["id"].partition(".")[0] in ids]
    print_list(chosen, as_json)


def _read(match: re.Match[str]) -> dict[str, str]:
    """A theorem as its page has it: its name, its sentence, and what it states."""
    stated = match["code"] or " ".join(match["words"].split())
    return {"id": match["id"], "sentence": " ".join(match["sentence"].split()), "stated": stated}


def print_list(theorems: Sequence[Mapping[str, str]], as_json: bool) -> None:
    """Print their names and sentences; as JSON with what they state."""
    if as_json:
        print(json.dumps(theorems, indent=2))
        return
    for theorem in theorems:
        print(f"{theorem['id']:16} {theorem['sentence']}")
