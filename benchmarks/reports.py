"""The public reports of tests/fuzz/reports_2026.py: how soon the mistake of each is found, by which judge, and how
small its story gets.

python benchmarks/reports.py [--only TEXT] [--missing] [--seeds N] [--shrink-seconds S] [--write PAGE]

What was measured is kept in a file beside the page, with the suffix `.json`; what is not measured now stays as it is
there. `--only` without a text measures nothing and writes the page anew.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from blockproof.fuzz.engines.mutants import FaultSearch, results
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.engines.stories import Stories, StoryTask
from blockproof.fuzz.faults import FAULTS
from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.simulation.run import SimulatedRun
from simulation import EVERY, PLACES, planted
from written import command, parser, processor, table

from tests.fuzz.reports_2026 import (
    BESIDE,
    CLASSES,
    REPORTS,
    REPOSITORIES,
    SHOWN,
    Report,
    named_mistakes,
)

Row: TypeAlias = dict[str, Any]
SECONDS = 60.0
"""Of the processor, within which a mistake is to be found with each seed."""
OURS = "our core"


def main() -> int:
    """Measure, keep, and write the page. 1 if a mistake was not found in time."""
    asked = _arguments().parse_args()
    about, rows = _kept(asked.write)
    texts = [""] if asked.only is None else asked.only
    wanted = [name for name in named_mistakes() if any(text in name for text in texts)]
    for name in [name for name in wanted if not (asked.missing and name in rows)]:
        rows[name] = _measured(name, asked)
        print(f"{name}: {rows[name]}", flush=True)
        about = {"command": command(), "processor": processor()}
        if asked.write:  # each time: what was measured is not lost when somebody ends it
            _write(asked.write, about, rows)
    if asked.write:
        _write(asked.write, about, rows)
    late = [name for name in wanted if name in rows and not in_time(rows[name])]
    print(f"{len(wanted) - len(late)} of {len(wanted)} found" + (f"; not in time: {', '.join(late)}" if late else ""))
    return 1 if late else 0


def _arguments() -> argparse.ArgumentParser:
    asked = parser(__doc__)
    asked.add_argument("--only", nargs="*")
    asked.add_argument("--missing", action="store_true")
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--shrink-seconds", type=float, default=30.0)
    return asked


def _kept(page: Path | None) -> tuple[dict[str, str], dict[str, Row]]:
    """What was measured before, and by which command and where."""
    file = None if page is None else page.with_suffix(".json")
    if file is None or not file.exists():
        return {"command": "", "processor": ""}, {}
    kept = json.loads(file.read_text(encoding="utf-8"))
    rows: Mapping[str, Row] = kept.pop("rows")
    return kept, {name: rows[name] for name in named_mistakes() if name in rows}


def _write(page: Path, about: Mapping[str, str], rows: Mapping[str, Row]) -> None:
    ordered = {name: rows[name] for name in named_mistakes() if name in rows}
    write_file(page.with_suffix(".json"), json.dumps({**about, "rows": ordered}, indent=1) + "\n")
    write_file(page, page_of(ordered, about["command"], about["processor"]))


# Measuring.


def _measured(name: str, asked: argparse.Namespace) -> Row:
    if name in FAULTS:
        search = FaultSearch(SECONDS, None, 1, shrink_seconds=asked.shrink_seconds)
        (result,) = results([FAULTS[name]], search, asked.seeds)
        hunts, middle = [one.hunt for one in result.caught], result.median
        seeds = [
            {"seconds": round(one.processor_seconds, 2), "steps": one.operations, "found": one.found} for one in hunts
        ]
        said = f"`{middle.observable}` at {middle.operation}"
        size = [] if middle.shrunk_to is None else [middle.shrunk_to]
        return {"where": OURS, "judges": [middle.oracle], "said": said, "seeds": seeds, "size": size}
    where = next(f"{example.name}/{file}" for mistakes, example, file, _ in PLACES if name in mistakes)
    with TemporaryDirectory() as scratch:
        family = planted(name, Path(scratch) / "engine")
        found = [_found(family, seed) for seed in range(1, asked.seeds + 1)]
        told = [_smallest(family, seed, number, asked.shrink_seconds) for seed, number in _stories(found)]
    judges = list(dict.fromkeys(one["judge"] for one in found if one["found"]))
    least = min(told, key=_size, default=None)
    seeds = [{key: one[key] for key in ("seconds", "steps", "found")} for one in found]
    said = "" if least is None else least["rule"]
    return {"where": where, "judges": judges, "said": said, "seeds": seeds, "size": _size(least) if least else []}


def _found(family: SimulatedFamily, seed: int) -> Row:
    """How long it took until the first finding."""
    begun, steps, number = time.process_time(), 0, 0
    while time.process_time() - begun < SECONDS:
        run = SimulatedRun(family.engine, family.draw(seed, number))
        found = run.run(3000)
        steps += run.steps
        if found:
            seconds = round(time.process_time() - begun, 2)
            return {"found": True, "judge": found[0].judge, "seconds": seconds, "steps": steps, "at": (seed, number)}
        number += 1
    return {"found": False, "seconds": SECONDS, "steps": steps, "at": None}


def _stories(found: Iterable[Row]) -> list[tuple[int, int]]:
    return [one["at"] for one in found if one["at"] is not None]


def _smallest(family: SimulatedFamily, seed: int, number: int, seconds: float) -> Row:
    """The finding of this story, made smaller."""
    told: list[Row] = []
    story = family.story_to_json(family.draw(seed, number))
    task = StoryTask(seed, replay=story, shrink_seconds=seconds)
    Stories(family, task, lambda what, about: told.append(dict(about)) if what == "found" else None).run()
    return told[0]


def _size(told: Row) -> list[int]:
    """Requests of the smallest story, what else happens in it, and the step of its finding."""
    happenings = told["story"]["happenings"]
    requests = sum(one["what"] in ("add", "fork") for one in happenings)
    other = len(happenings) - requests + len(told["story"].get("network", ()))
    return [requests, other, told["step"]]


def in_time(row: Row) -> bool:
    """True if it was found with each seed."""
    return all(one["found"] and one["seconds"] <= SECONDS for one in row["seeds"])


# The page.

_HEAD = """# Reports of 2025 and 2026

Public reports on blocks under transfer, lower tiers, the reports of transfers, states, counters, epochs of
weights and forks: the mistake behind each is planted into a small engine of ours, and looked for. The
mechanisms are told in our own words, in `tests/fuzz/reports_2026.py`; older reports on the core of paged
caches are [elsewhere](real-bugs.md), what was found on real releases in [findings](findings.md). Last written
by `{command}`
on {processor}.
"""
_HOW = """
A mistake is a small change of the [scheduler](../../examples/my-scheduler-engine/README.md), of what it
offloads (`offloading.py`), of its tier on the host (`tiered.py`) or of the [pair](../../examples/my-pair/README.md)
among the examples, or a [fault](../guide/detection.md) of our core; one may stand for several reports.
Seconds are those of the processor until it is found, with seeds 1 and 2; a smallest story has so many
requests, so many other things happen in it (a client leaves, new weights, a lost message), and it is found in
that step. Of our core it has so many operations. Without a mistake the engines and the core are silent.
"""


def page_of(rows: Mapping[str, Row], by: str, on: str) -> str:
    """The whole page."""
    lines = [*_HEAD.format(command=by, processor=on).splitlines(), "", *_sums(rows), *_HOW.splitlines()]
    for number, name in CLASSES.items():
        lines += ["", f"## {name}", ""]
        reached = [one for one in (*REPORTS[number], *BESIDE[number]) if one.mistakes]
        lines += table("report | what went wrong | mistake | judge", [_report(one, rows) for one in reached])
        if missing := [one for one in REPORTS[number] if not one.mistakes]:
            lines += ["", "Not planted:", ""]
            lines += table("report | what went wrong | why not", [(_link(one.name), *one[1:4:2]) for one in missing])
    lines += ["", "## On a release", "", "`blockproof simulate --keep-going --target ...` shows these as well:", ""]
    head = "report | under the name | judge | target"
    lines += table(head, [(_link(one), *_shown(*shown)) for one, shown in SHOWN.items()])
    lines += ["", "## Mistakes", ""]
    head = "mistake | where | judge | seconds: | steps: | smallest story: | what is said"
    return "\n".join([*lines, *table(head, [_mistake(name, row) for name, row in rows.items()]), ""])


def _sums(rows: Mapping[str, Row]) -> list[str]:
    listed = [one for reports in REPORTS.values() for one in reports]
    planted = [one for one in listed if one.mistakes]
    beside = [one for reports in BESIDE.values() for one in reports]
    soon = [one for one in (*planted, *beside) if all(name in rows and in_time(rows[name]) for name in one.mistakes)]
    most = max((seed["seconds"] for row in rows.values() for seed in row["seeds"]), default=0.0)
    stories = sorted(row["size"][0] for row in rows.values() if row["where"] != OURS and row["size"])
    many = len(planted) + len(beside)
    return [
        f"* {len(listed)} reports of seven classes, of which {len(planted)} are planted,",
        f"  and {len(beside)} others of the same classes; {len(rows)} mistakes.",
        f"* {len(soon)} of these {many} reports are found within {SECONDS:.0f} s with each of two seeds,",
        f"  the last after {most:.1f} s.",
        f"* Their smallest stories have {stories[len(stories) // 2]} requests in the median, {stories[-1]} at most.",
    ]


def _link(name: str) -> str:
    short, _, number = name.partition("#")
    return f"[{REPOSITORIES[short]}#{number}](https://github.com/{REPOSITORIES[short]}/issues/{number})"


def _shown(name: str, judge: str, run: str) -> tuple[str, str, str]:
    return (_link(name) if "#" in name else f"[{name}](deviations.md#{name})"), judge, f"`{run}`"


def _report(one: Report, rows: Mapping[str, Row]) -> tuple[str, ...]:
    judges = dict.fromkeys(judge for name in one.mistakes if name in rows for judge in rows[name]["judges"])
    return _link(one.name), one.mechanism, ", ".join(f"`{name}`" for name in one.mistakes), ", ".join(judges)


def _mistake(name: str, row: Row) -> Sequence[object]:
    what = EVERY[name].what if name in EVERY else FAULTS[name].describe
    seeds = [seed for seed in row["seeds"] if seed["found"]]
    seconds = ", ".join(f"{seed['seconds']:.1f}" for seed in seeds)
    steps = ", ".join(f"{seed['steps']:,}" for seed in seeds)
    return (
        f"{what} (`{name}`)",
        row["where"],
        ", ".join(row["judges"]),
        seconds,
        steps,
        _in_words(row["size"]),
        row["said"],
    )


def _in_words(size: Sequence[int]) -> str:
    if len(size) < 3:
        return f"{size[0]} operations" if size else "–"
    requests, other, step = size
    return f"{requests} + {other}, step {step}"


if __name__ == "__main__":
    sys.exit(main())
