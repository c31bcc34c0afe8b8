"""Malformed reports, for `report`, and checkpoints, for `explore`; made like those in `malformed_cases`."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from blockproof.fuzz.cli.main import main
from blockproof.fuzz.exploration import checkpoint
from blockproof.fuzz.findings.reading import json_of
from blockproof.fuzz.page.files import RESULTS

from .filled import filled
from .malformed import TEXTS, damaged, spoiled


def report_data(kind: str, text: Callable[[], str]) -> Any:
    """The data of such a report, with `text()` in every field that is a text."""
    data = filled(RESULTS[kind], text) | {"document": kind}
    if kind == "exploration":
        for scope in data["scopes"]:
            scope["levels"] = [1, scope["states"] - 1]
    return data


def report_text(kind: str, text: Callable[[], str]) -> str:
    """The JSON of such a report."""
    return json.dumps(report_data(kind, text))


class Reports:
    """Reports, of which some name a trace that is there."""

    def __init__(self, folder: Path, trace: str) -> None:
        self._folder = folder
        (folder / "there.json").write_text(trace)
        self.whole = [report_text(kind, lambda: "there.json") for kind in RESULTS]
        random = Random(0)
        self.whole += [report_text(kind, lambda: random.choice(TEXTS)) for kind in RESULTS for _ in range(3)]

    def words(self, random: Random) -> list[str]:
        """The arguments of a command that is given a malformed one."""
        path = self._folder / random.choice(("run.json", "campaign.json"))
        path.write_bytes(spoiled(random.choice(self.whole), random))
        what = self._folder if random.random() < 0.1 and path.name == "campaign.json" else path
        return ["report", str(what), "-o", str(self._folder / "page.html"), *random.choice(([], ["--json"]))]


def _sealed(head: bytes, data: bytes) -> bytes:
    """The head of a checkpoint with the digest that fits, and with the right sum of sizes: anybody can write that."""
    try:
        header: Any = json_of(head)
        sizes = header["sizes"]
        sizes[-1] += len(data) - sum(sizes)
        header["digest"] = checkpoint._digest(header, [data])
        return json.dumps(header).encode()
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        return head


class Checkpoints:
    """Checkpoints: heads that are no JSON of ours, sizes that do not fit, cut off data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.command = ["explore", "full", "--max-states", "60", "--save", str(folder), "--out", str(folder)]
        assert main(self.command) in (0, 1)
        (self.path,) = folder.glob("*.states")
        self._head, _, self._data = self.path.read_bytes().partition(b"\n")

    def words(self, random: Random) -> list[str]:
        """As for `Reports`."""
        head, data = self._head, self._data
        if random.random() < 0.5:
            head = spoiled(head.decode(), random).replace(b"\n", b" ")
        else:
            data = damaged(data, random)
        if random.random() < 0.5:
            self.put(head, data)
        else:
            self.path.write_bytes(head + b"\n" + data)
        return self.command

    def put(self, head: bytes, data: bytes) -> None:
        """Write a checkpoint of this head and these data, with the digest that fits if the head has a place for it."""
        self.path.write_bytes(_sealed(head, data) + b"\n" + data)
