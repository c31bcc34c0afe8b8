"""Whether a proposed fix holds: a release that is patched at run time shows its finding no more, and nothing else.

A fix is a Python file `FOLDER/NAME/fix.py` whose function `fix()` changes the engine in its own process. It is tried in
two ways. The finding's script runs without and with it (`--fixed`) and must show the defect, then nothing. And the
oracles look at the release without and with it, over the same seed: what they find with it they must also find without.
A kind that came up with the fix only is held against the release without it, by its trace, since runs part where
answers do.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ..engines.plan import Plan
from ..engines.seeded import run_random
from ..findings.finding import Finding
from ..findings.oracle_names import LOCKSTEP, MODEL_FREE, STRICT
from ..opening.targets import open_target
from ..reports.summary import Found, Summary
from ..runs.judging import Judging
from ..targets.base import Target
from ..traces.replay import replay
from .finding_scripts import run_script
from .findings import SCRIPT, STORY, FindingEntry, Held, Judged, Kinds

FIX = "fix.py"
"""A finding's proposed change, in a folder of its name."""
JUDGES: tuple[tuple[str, ...], ...] = ((*MODEL_FREE, STRICT), (LOCKSTEP,))
"""Each of these judges as many operations: one run ends at its first finding, and lockstep finds most."""


def with_fix(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of these findings that have a fix to try."""
    return [name for name in names if (folder / name / FIX).exists()]


def try_fixes(
    folder: Path,
    entries: Mapping[str, FindingEntry],
    spec: str,
    plan: Plan,
    on_held: Callable[[str, Held], None],
    opened: Callable[[Path | None], Target] | None = None,
) -> dict[str, Held]:
    """Try the fix of each of these findings on a release; `plan` has seed, operations and attention types.

    `opened` opens the release with a fix, or without one. What an engine under simulation shows, which has a story, is
    judged by the scripts alone. TargetUnavailableError if the release is not installed or a fix cannot be applied.
    """
    held = {}
    for name in [name for name in entries if (folder / name / STORY).exists()]:
        held[name] = Held(*_by_script(folder, name, entries[name], spec), ())
        on_held(name, held[name])
    entries = {name: entry for name, entry in entries.items() if name not in held}
    if not entries:
        return held
    opened = opened or (lambda fix: open_target(spec, isolate=True, fix=fix))
    with closing(opened(None)) as plain:
        without = [_run(plain, plan, oracles) for oracles in JUDGES]
        for name in entries:
            plainly, fixed = _by_script(folder, name, entries[name], spec)
            with closing(opened(folder / name / FIX)) as changed:
                judged = [_judge(plain, changed, plan, summary) for summary in without]
            held[name] = Held(plainly, fixed, tuple(judged))
            on_held(name, held[name])
    return held


def _by_script(folder: Path, name: str, entry: FindingEntry, spec: str) -> tuple[str, str]:
    """What the finding's script shows without the fix, and with it."""
    plainly, fixed = (run_script(folder / name / SCRIPT, spec, entry.raises, fixed=one).seen for one in (False, True))
    return plainly, fixed


def _run(target: Target, plan: Plan, oracles: tuple[str, ...]) -> Summary:
    summary = Summary(target.name, "random", plan.seed, oracles=oracles, allow_vacuous=True)
    return run_random(target, replace(plan, oracles=oracles, keep_going=True).possible_on(target), summary)


def _judge(plain: Target, changed: Target, plan: Plan, without: Summary) -> Judged:
    """What the same oracles find with the fix, and which kinds of it are new."""
    fixed = _run(changed, plan, without.oracles)
    before, after = kinds(without), kinds(fixed)
    operations = min(without.operations, fixed.operations)
    more = [kind for kind in after if kind not in before]
    judging = replace(plan, oracles=without.oracles).judging()
    new = [kind for kind in more if not any(_shows(kind, found, plain, judging) for found in _of_kind(kind, fixed))]
    return Judged(without.oracles, operations, plan.seed, before, after, tuple(new))


def _shows(kind: str, found: Found, plain: Target, judging: Judging) -> bool:
    """True if the trace of a finding shows one of this kind on the release without the fix."""
    finding, _ = replay(found.trace, plain, judging)
    return finding is not None and kind in map(kind_of, finding.every)


def kinds(summary: Summary) -> Kinds:
    """The kinds of findings of a run, with how often each came up."""
    counted: Kinds = {}
    for found in summary.found.values():
        kind = kind_of(found.finding)
        counted[kind] = counted.get(kind, 0) + found.times
    return dict(sorted(counted.items()))


def kind_of(finding: Finding) -> str:
    """The kind of a finding, as `contract: S7 at Lookup`."""
    observable, operation = finding.kind
    return f"{finding.oracle}: {observable} at {operation}"


def _of_kind(kind: str, summary: Summary) -> list[Found]:
    return [found for found in summary.found.values() if kind_of(found.finding) == kind]
