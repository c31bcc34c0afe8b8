"""Findings in released engines: written up once, observed again on every release by machine.

A folder holds `findings.toml`, what a person has to say of each, `ID.json`, the smallest trace of each, and
`releases.json`, what was observed on which release. The page is made of the three.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ..findings.reading import UnreadableError, read_bytes
from ..findings.words import trace_lines
from ..findings.writing import alone, write_file
from ..planning.shipped import FINDINGS, shipped
from ..traces.files import TraceError
from ..traces.trace_file import TraceFile, read_trace
from .markdown import prose
from .scheduler_cases import SHOWS

CLASSES = (
    "user-visible corruption",
    "leak",
    "deadlock",
    "crash",
    "lost efficiency",
    "latent",
)
"""What a finding does to users, the worst first. Latent: no scheduler that we know of comes there."""
TEXTS, OBSERVED, FOOT = "findings.toml", "releases.json", "looked-for.md"
SCRIPT, REPORT, BY_SCRIPTS = "reproduce.py", "report.md", "scripts.json"
"""A finding's script and report, in a folder of its name, and the file with what each script showed, by release."""
_SCRIPTS = (
    f"A *script*, `findings/NAME/{SCRIPT}`, shows the same with nothing but the engine and Python. It starts the "
    "engine's own core (configuration, input processing, start-up checks, scheduler, step loop) over an executor that "
    "computes nothing, prints what is expected and what happens, and exits with 1 where the defect shows, 0 where it "
    "does not, and 3 where it could not be tried. `blockproof findings --scripts` runs all of them on every installed "
    f"release and compares with what was recorded (`findings/{BY_SCRIPTS}`). With `--fixed` some of them change the "
    "engine as proposed before they start it."
)
Observations = dict[str, dict[str, str]]
"""What each trace (or case of a scheduler) shows, by id and release."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "class"}):
    """What a person says of a finding."""

    title: str
    kind: str
    """One of `CLASSES`."""
    rule: str
    """What is violated: property, section, theorem."""
    reachable: str
    """Whether the engine's own scheduler gets there: `yes`, `no` or `argued`, and how that is known."""
    sees: str
    """What a user sees."""
    fix: str
    """In words."""
    today: str = ""
    """What a user can do about it today."""
    near: str = ""
    """Reports of other things that are close to it, and what they cover."""
    ready: bool = False
    """True if its folder has a report that can be sent as it is (`REPORT`)."""
    reports: tuple[str, ...] = ()
    """Issues and pull requests about it, as `vllm-project/vllm#39734`."""
    case: str = ""
    """Case of the family's scheduler run that shows it (`Family.scheduler`)."""
    raises: str = ""
    """The exception that the engine ends with, as `TYPE: TEXT`; what shows another one does not show this finding."""
    mechanism: tuple[str, ...] = ()
    """Known deviations (`targets.deviations`) that it takes, if that is not only the one with the finding's own id."""
    strict: bool = False
    """True if it counts as a known loss, which only strict oracles report."""


def read_entries(folder: Path) -> dict[str, Entry]:
    """The texts of a folder, by id. TraceError says what is wrong with the file."""
    path = folder / TEXTS
    try:
        entries = msgspec.toml.decode(read_bytes(path, TEXTS), type=dict[str, Entry])
    except UnreadableError as error:
        raise TraceError(str(path), "", f"{error}; a folder of findings has a {TEXTS}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(str(path), "", f"{error}; see blockproof.fuzz.findings.Entry for the fields") from None
    for name, entry in entries.items():
        if entry.kind not in CLASSES:
            raise TraceError(str(path), name, f"class {entry.kind!r} is unknown; write one of {', '.join(CLASSES)}")
    return entries


def known_causes() -> dict[frozenset[str], str]:
    """By the known deviations that it takes, the finding that is written up of it: for `engines.root_causes`.

    Errors as from `read_entries`."""
    entries = read_entries(shipped(FINDINGS))
    own = {frozenset([name]): name for name in entries}
    return own | {frozenset(entry.mechanism): name for name, entry in entries.items() if entry.mechanism}


def read_traces(folder: Path, names: Sequence[str]) -> dict[str, TraceFile]:
    """The traces of these findings; one that only a scheduler shows has none."""
    return {name: read_trace(folder / f"{name}.json") for name in names if (folder / f"{name}.json").exists()}


def read_observations(folder: Path, file: str = OBSERVED) -> Observations:
    """What was observed before; empty if nothing was. TraceError says what is wrong with the file."""
    path = folder / file
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(read_bytes(path, OBSERVED), type=Observations)
    except (UnreadableError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(str(path), "", f"{error}; write it again with blockproof findings --record") from None


def record_observations(folder: Path, observed: Observations, file: str = OBSERVED) -> None:
    """Add what was observed to what the folder's file has, in place of older observations of the same. TraceError as
    from `read_observations`."""
    path = folder / file
    with alone(path):
        everything = updated(read_observations(folder, file), observed)
        write_file(path, json.dumps(everything, indent=1, sort_keys=True) + "\n")


def updated(recorded: Observations, observed: Observations) -> Observations:
    """What was recorded, with these observations in place of older ones."""
    return {
        name: {**recorded.get(name, {}), **observed.get(name, {})} for name in dict.fromkeys((*recorded, *observed))
    }


def folder_page(folder: Path, command: str) -> str:
    """The page about a folder, with what a person adds at its end (`looked-for.md`); `command` checks them again."""
    foot = folder / FOOT
    try:
        end = read_bytes(foot, FOOT).decode() if foot.exists() else ""
    except (UnreadableError, UnicodeDecodeError) as error:
        raise TraceError(str(foot), "", f"{error}; write Markdown") from None
    entries = read_entries(folder)
    observed = {**read_observations(folder), **_of_scripts(folder)}
    return page(entries, read_traces(folder, list(entries)), observed, command, end)


def _of_scripts(folder: Path) -> Observations:
    return {by_script(name): row for name, row in read_observations(folder, BY_SCRIPTS).items()}


def page(
    entries: Mapping[str, Entry], traces: Mapping[str, TraceFile], observed: Observations, command: str, foot: str
) -> str:
    """All findings as Markdown; `command` checks them again, `foot` is what a person adds at the end."""
    releases = sorted({release for row in observed.values() for release in row}, key=_natural)
    lines = [
        "# Findings in released engines",
        "",
        "Violations of the contract, of what the shadow memory reads back, or of",
        "liveness ([what judges a core](../reference/properties.md)), each with its smallest trace, observed by replay",
        "on every release. This page is written, and checked, by",
        f"`{command}`.",
        "",
        *prose(_SCRIPTS),
        "",
        *_summary(entries, observed, releases),
    ]
    for name, entry in sorted(entries.items(), key=lambda one: (CLASSES.index(one[1].kind), one[0])):
        lines += ["", f"## {name}", "", *_entry_lines(name, entry, traces.get(name), observed)]
    return "\n".join([*lines, "", foot.strip(), ""])


def _summary(entries: Mapping[str, Entry], observed: Observations, releases: Sequence[str]) -> Iterator[str]:
    yield "| finding | class | reachable | first | last |"
    yield "| --- | --- | --- | --- | --- |"
    for name, entry in sorted(entries.items(), key=lambda one: (CLASSES.index(one[1].kind), one[0])):
        shown = [release for release in releases if _is_shown(name, release, observed)]
        first, last = (shown[0], shown[-1]) if shown else ("not observed", "")
        yield f"| [{name}](#{name}) | {entry.kind} | {entry.reachable.partition(':')[0]} | {first} | {last} |"


def _is_shown(name: str, release: str, observed: Observations) -> bool:
    return any(observed.get(key, {}).get(release) == SHOWS for key in (name, by_scheduler(name), by_script(name)))


def by_scheduler(name: str) -> str:
    """The key under which it is recorded what the engine's own scheduler shows."""
    return f"{name} (scheduler)"


def by_script(name: str) -> str:
    """The key for what a finding's standalone script shows."""
    return f"{name} (script)"


def _entry_lines(name: str, entry: Entry, file: TraceFile | None, observed: Observations) -> Iterator[str]:
    yield from prose(f"{entry.title}.")
    yield ""
    said = {
        "class": entry.kind,
        "violates": entry.rule,
        "reports": ", ".join(entry.reports),
        "reachable from the engine's own scheduler": entry.reachable,
        "a user sees": entry.sees,
        "until it is fixed": entry.today,
        "proposed fix": entry.fix,
        "close to it": entry.near,
        "to be sent": f"[a report](findings/{name}/{REPORT})" if entry.ready else "",
        "trace": _ranges(observed.get(name, {})),
        f"scheduler run `{entry.case}`": _ranges(observed.get(by_scheduler(name), {})),
        "the exception": entry.raises and f"`{entry.raises}`",
        f"[script](findings/{name}/{SCRIPT})": _ranges(observed.get(by_script(name), {})),
    }
    for what, text in said.items():
        if text:
            yield from prose(f"{what}: {text}", bullet="* ")
    if file is not None:
        told = [*trace_lines(file.trace.shape, file.trace.operations), ""]
        told += file.finding.text.splitlines() if file.finding else []
        yield from ("", f"[findings/{name}.json](findings/{name}.json)", "", "```", *told, "```")


def _ranges(row: Mapping[str, str]) -> str:
    """What was observed, neighbouring releases together: `0.19.1 to 0.23.0 shows; 0.24.0 nothing`."""
    runs: list[tuple[str, str, str]] = []
    for release in sorted(row, key=_natural):
        if runs and runs[-1][2] == row[release]:
            runs[-1] = (runs[-1][0], release, row[release])
        else:
            runs.append((release, release, row[release]))
    return "; ".join(f"{first if first == last else f'{first} to {last}'}: {what}" for first, last, what in runs)


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts texts with numbers in them by their numbers."""
    return [(int(part or 0), word) for word, part in re.findall(r"(\D*)(\d*)", text)]
