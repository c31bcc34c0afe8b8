"""Floors: how often a run must at least have reached something, so that a harness that went blind is noticed.

A floors file is TOML (or JSON) with a table for each thing that is counted:

    [total]
    operations = 100000
    [situations]
    "hit" = 100
    [operations]
    Preempt = 20
    [attention]
    "full+sliding" = 5
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..findings.reading import UnreadableError, json_of, read_bytes
from ..findings.visible import one_line

if TYPE_CHECKING:  # the command line imports this module, and need not wait for what a summary is made of
    from .summary import Summary

Floors: TypeAlias = Mapping[str, Mapping[str, int]]
TABLES = ("total", "situations", "operations", "attention")
TOTALS = ("operations", "runs")
MAX_BYTES = 2**20


class FloorsError(Exception):
    """A floors file that cannot be used; the text is one line that names file, place and remedy."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


def read_floors(path: Path, tables: Sequence[str] = TABLES, totals: Sequence[str] = TOTALS) -> Floors:
    """The floors in a file of these tables. FloorsError if it cannot be read or holds anything else."""
    try:
        data = read_bytes(path, "floors", MAX_BYTES)
        raw = json_of(data) if path.suffix == ".json" else tomllib.loads(data.decode())
    except UnreadableError as error:
        raise FloorsError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise FloorsError(f"{path}: {error}; correct the file") from None
    if not isinstance(raw, dict):
        raise FloorsError(f"{path}: expected tables {', '.join(tables)}")
    for table, floors in raw.items():
        if table not in tables or not isinstance(floors, dict):
            raise FloorsError(f"{path}: [{table}]: expected one of the tables {', '.join(tables)}")
        for name, floor in floors.items():
            if type(floor) is not int or floor < 0:
                raise FloorsError(f"{path}: [{table}] {name}: expected a number of times, got {floor!r}")
            if table == "total" and name not in totals:
                raise FloorsError(f"{path}: [total] {name}: expected {' or '.join(totals)}")
    return raw


def check_floors(summary: "Summary", floors: Floors) -> list[str]:
    """A line for each floor that the run did not reach."""
    total = {"operations": summary.operations, "runs": summary.runs}
    reached = {
        "total": ("{} in all", total),
        "situations": ("situation {!r} reached", summary.reached),
        "operations": ("operation {} made", summary.operation_counts),
        "attention": ("attention {} run", summary.attention - summary.unbuilt),
    }
    return [
        f"{reached[table][0].format(name)} {times} times, floor {floor}"
        for table, wanted in floors.items()
        for name, floor in wanted.items()
        if (times := reached[table][1].get(name, 0)) < floor
    ]
