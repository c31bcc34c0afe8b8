"""Findings in released engines: written up once, observed again on every release by machine.

A folder holds `findings.toml`, what a person has to say of each, `ID.json`, the smallest trace of each, and
`releases.json`, what was observed on which release. The page is made of the three. What came of trying proposed fixes
(`fixes`) is kept beside them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from ..findings.oracle_names import LOCKSTEP
from ..findings.reading import UnreadableError, read_bytes
from ..findings.words import plural, trace_lines
from ..findings.writing import alone, write_file
from ..oracles.contract.properties import PROPERTIES as CONTRACT
from ..oracles.liveness.rules import PROPERTIES as LIVENESS
from ..planning.shipped import FINDINGS, THEOREMS, shipped
from ..simulation.judges import JUDGES as SIMULATION
from ..traces.files import TraceError
from ..traces.trace_file import TraceFile, read_trace
from .markdown import prose
from .scheduler_cases import NOTHING, SHOWS

BY_FIXES = "fixes.json"
"""The file with what came of trying each fix, by finding and release."""
Kinds = dict[str, int]
"""Kinds of findings, as `contract: S7 at Lookup`, and how many runs ended with each."""


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What some oracles found on a release without the fix and with it."""

    oracles: tuple[str, ...]
    operations: int
    """At least so many without the fix, and with it."""
    seed: int
    without: Kinds
    fixed: Kinds
    new: tuple[str, ...]
    """Kinds that the fix brings: found with it, and their traces show nothing of the kind without it."""


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of trying a fix on a release."""

    script: str
    """What the finding's script shows without the fix (`finding_scripts.Told.seen`)."""
    script_fixed: str
    """What it shows with it."""
    judged: tuple[Judged, ...]
    """None of a release that is only simulated."""

    def problem(self) -> str:
        """Why the fix does not hold; empty if it does."""
        if self.script != SHOWS:
            return f"the script must show the defect without the fix; it says {self.script}"
        if self.script_fixed != NOTHING:
            return f"the script with the fix says {self.script_fixed}"
        new = [kind for one in self.judged for kind in one.new]
        return f"the oracles find more with the fix: {', '.join(new)}" if new else ""

    def told(self) -> str:
        """What was tried and how it came out, in a sentence or two."""
        if problem := self.problem():
            return f"does not hold: {problem}"
        judged = [
            f"In {plural(one.operations, 'operation')} under {', '.join(one.oracles)}: {_compared(one)}"
            for one in self.judged
        ]
        return f"holds. {'. '.join(['The script shows nothing with it', *judged])}"


Fixes = dict[str, dict[str, Held]]
"""By finding and release."""


def read_fixes(folder: Path) -> Fixes:
    """What was recorded before; empty if nothing was. TraceError says what is wrong with the file."""
    path = folder / BY_FIXES
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(read_bytes(path, BY_FIXES), type=Fixes)
    except (UnreadableError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(str(path), "", f"{error}; write it again with blockproof findings --fixes --record") from None


def record_fix(folder: Path, name: str, spec: str, held: Held) -> None:
    """Add this to what the folder's file has, in place of an older trial. TraceError as from `read_fixes`."""
    path = folder / BY_FIXES
    with alone(path):
        everything = read_fixes(folder)
        everything.setdefault(name, {})[spec] = held
        whole = msgspec.json.encode(everything, order="deterministic")
        write_file(path, msgspec.json.format(whole, indent=1).decode() + "\n")


def _compared(one: Judged) -> str:
    """The kinds of findings without the fix and with it, compared."""
    gone = [kind for kind in one.without if kind not in one.fixed]
    rest = f"; gone with it: {', '.join(gone)}" if gone else ""
    if not one.fixed:
        return f"nothing found{rest}"
    what = "differences from the model" if LOCKSTEP in one.oracles else "findings"
    return f"{plural(len(one.fixed), 'kind')} of {what}, none that is not there without it{rest}"


REFERENCE = "../reference"
"""Where the pages with the rules are, seen from the page of the findings."""
_ROW = re.compile(r"^\| \[(T[\w.]+)\]\(([\w.#-]+)\) \| (.*?) \|", re.MULTILINE)
"""A theorem in the table of all theorems: its name, where its page has it, and what it says."""


def rule_text(name: str) -> str:
    """A rule as Markdown: its name as a link, and its sentence; only the name, if no rule is called so."""
    if name in CONTRACT:
        return f"[{name}]({REFERENCE}/contract.md#properties): {CONTRACT[name]}"
    if name in LIVENESS:
        return f"[{name}]({REFERENCE}/liveness.md#the-properties): {LIVENESS[name]}."
    if name in SIMULATION:
        return f"[{name}](../guide/engines.md#what-judges): {SIMULATION[name]}."
    if name in (theorems := _theorems(str(shipped(THEOREMS / "README.md")))):
        place, says = theorems[name]
        return f"[{name}]({REFERENCE}/theorems/{place}): {says}"
    return name


@cache
def _theorems(path: str) -> dict[str, tuple[str, str]]:
    """Where each theorem stands and what it says, by name; empty if there is no such file."""
    table = Path(path)
    text = table.read_text(encoding="utf-8") if table.exists() else ""
    return {name: (place, says) for name, place, says in _ROW.findall(text)}


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
STORY = "story.json"
"""The smallest story under simulation, in a folder of its name."""
SCRIPT, REPORT, BY_SCRIPTS = "scenario.py", "report.md", "scripts.json"
"""A finding's script and report, in a folder of its name, and the file with what each script showed, by release."""
WHOLE = "reproduce.py"
"""What a script is called that has in it what it shares with others."""
_SCRIPTS = (
    f"A *script*, `findings/NAME/{SCRIPT}`, shows the same with nothing but the engine and Python. `blockproof "
    f"findings --script NAME > {WHOLE}` writes it as one file, with what the scripts share in it. It starts the "
    "engine's own core (configuration, input processing, start-up checks, scheduler, step loop) over an executor that "
    "computes nothing, prints what is expected and what happens, and exits with 1 where the defect shows, 0 where it "
    "does not, and 3 where it could not be tried. `blockproof findings --scripts` runs all of them on every installed "
    f"release and compares with what was recorded (`findings/{BY_SCRIPTS}`)."
)
_FIXES = (
    f"A *fix*, `findings/NAME/fix.py`, is the proposed change as a patch of the running engine; `{WHOLE} --fixed` "
    "runs the script with it. `blockproof findings --fixes` tries each: the script must show the defect without it and "
    "nothing with it, and the oracles, over the same operations, must find nothing with it that they do not find "
    f"without it (`findings/{BY_FIXES}`)."
)
_LINE = re.compile(r" \(\w+, line \d+\)$")
"""Where an exception came from, which is another line in each release."""
Observations = dict[str, dict[str, str]]
"""What each trace (or case of a scheduler) shows, by id and release."""


class FindingEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "class"}):
    """What a person says of a finding."""

    title: str
    kind: str
    """One of `CLASSES`."""
    rule: str
    """What is violated: names of properties and theorems, with commas between them (`rules.rule_text`)."""
    reachable: str
    """Whether the engine's own scheduler gets there: `yes`, `no` or `argued`, and how that is known."""
    sees: str
    """What a user sees."""
    fix: str
    """In words."""
    likely: str = ""
    """How often it happens with realistic sizes: numbers, and what prints them."""
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


def read_entries(folder: Path) -> dict[str, FindingEntry]:
    """The texts of a folder, by id. TraceError says what is wrong with the file."""
    path = folder / TEXTS
    try:
        entries = msgspec.toml.decode(read_bytes(path, TEXTS), type=dict[str, FindingEntry])
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
    stories = [name for name in entries if (folder / name / STORY).exists()]
    return page(entries, read_traces(folder, list(entries)), observed, command, end, read_fixes(folder), stories)


def _of_scripts(folder: Path) -> Observations:
    return {by_script(name): row for name, row in read_observations(folder, BY_SCRIPTS).items()}


def page(
    entries: Mapping[str, FindingEntry],
    traces: Mapping[str, TraceFile],
    observed: Observations,
    command: str,
    foot: str,
    fixes: Fixes | None = None,
    stories: Sequence[str] = (),
) -> str:
    """All findings as Markdown, those first that the newest release still shows; `command` checks them again, `foot` is
    what a person adds at the end, `stories`: those of which the smallest one under simulation is kept."""
    lines = [
        "# Findings in released engines",
        "",
        "Violations of the contract, of what the shadow memory reads back, or of",
        "liveness ([what judges a core](../reference/properties.md)), each with its smallest trace, observed by replay",
        "on every release; and what [simulation](../guide/engines.md) finds, with its smallest story. This page is",
        "written, and checked, by",
        f"`{command}`.",
        "",
        *prose(_SCRIPTS),
        "",
        *prose(_FIXES),
    ]
    ordered = dict(sorted(entries.items(), key=lambda one: (CLASSES.index(one[1].kind), one[0])))
    open_ones = [name for name in ordered if _is_open(name, observed)]
    gone = [name for name in ordered if name not in open_ones]
    for title, names in (("In the newest release", open_ones), ("Gone from the newest release", gone)):
        if names:
            lines += ["", f"**{title}**", "", *_summary({name: ordered[name] for name in names}, observed)]
    for name in (*open_ones, *gone):
        tried = (fixes or {}).get(name, {})
        lines += ["", f"## {name}", "", *_entry_lines(name, ordered[name], traces.get(name), observed, tried)]
        if name in stories:
            lines += prose(f"[the smallest story](findings/{name}/{STORY}) under simulation", bullet="* ")
    return "\n".join([*lines, "", foot.strip(), ""])


def _summary(entries: Mapping[str, FindingEntry], observed: Observations) -> Iterator[str]:
    yield "| finding | class | reachable | first | last |"
    yield "| --- | --- | --- | --- | --- |"
    for name, entry in entries.items():
        shown = [release for release in _releases(name, observed) if _is_shown(name, release, observed)]
        first, last = (shown[0], shown[-1]) if shown else ("not observed", "")
        yield f"| [{name}](#{name}) | {entry.kind} | {entry.reachable.partition(':')[0]} | {first} | {last} |"


def _keys(name: str) -> tuple[str, str, str]:
    """The keys under which it is recorded what a finding's trace, scheduler run and script show."""
    return name, by_scheduler(name), by_script(name)


def _releases(name: str, observed: Observations) -> list[str]:
    """The releases on which a finding was looked for, the oldest first."""
    return sorted({release for key in _keys(name) for release in observed.get(key, {})}, key=_natural)


def _is_open(name: str, observed: Observations) -> bool:
    """True if the newest release on which it was looked for shows it."""
    releases = _releases(name, observed)
    return bool(releases) and _is_shown(name, releases[-1], observed)


def _is_shown(name: str, release: str, observed: Observations) -> bool:
    return any(observed.get(key, {}).get(release) == SHOWS for key in _keys(name))


def by_scheduler(name: str) -> str:
    """The key under which it is recorded what the engine's own scheduler shows."""
    return f"{name} (scheduler)"


def by_script(name: str) -> str:
    """The key for what a finding's standalone script shows."""
    return f"{name} (script)"


def _entry_lines(
    name: str, entry: FindingEntry, file: TraceFile | None, observed: Observations, tried: Mapping[str, Held]
) -> Iterator[str]:
    yield from prose(f"{entry.title}.")
    yield ""
    patch = f"[the proposed fix](findings/{name}/fix.py)" if tried else ""
    said = [
        ("class", entry.kind),
        ("a user sees", entry.sees),
        ("reachable from the engine's own scheduler", entry.reachable),
        ("how likely", entry.likely),
        ("workaround", entry.today),
        ("proposed fix", entry.fix),
        *((f"{patch} on {spec}", held.told()) for spec, held in tried.items()),
        ("reports", ", ".join(entry.reports)),
        ("close to it", entry.near),
        ("to be sent", f"[a report](findings/{name}/{REPORT})" if entry.ready else ""),
        (f"[script](findings/{name}/{SCRIPT})", _ranges(observed.get(by_script(name), {}))),
        ("the exception", entry.raises and f"`{entry.raises}`"),
        (f"scheduler run `{entry.case}`", _ranges(observed.get(by_scheduler(name), {}))),
        ("trace", _ranges(observed.get(name, {}))),
        *(("violates", rule_text(rule)) for rule in entry.rule.split(", ")),
    ]
    for what, text in said:
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
        what = _LINE.sub("", row[release])
        if runs and runs[-1][2] == what:
            runs[-1] = (runs[-1][0], release, what)
        else:
            runs.append((release, release, what))
    return "; ".join(f"{first if first == last else f'{first} to {last}'}: {what}" for first, last, what in runs)


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts texts with numbers in them by their numbers."""
    return [(int(part or 0), word) for word, part in re.findall(r"(\D*)(\d*)", text)]
