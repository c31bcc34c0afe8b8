"""The parts of watching a release: which commands are run, and what their JSON says is new, fixed or changed."""

from typing import Any

from ..adapters import family_of
from ..findings.words import plural
from ..planning.shipped import DEVIATIONS
from ..reports.summary import NEW
from .bisect import one_line
from .deviations_elsewhere import ALIKE, SAME
from .scheduler_cases import NOTHING, SHOWS
from .watch import Part, PartNews, Sides, Unexplained

CAMPAIGN_SHARE, DIFF_SHARE = 0.2, 0.1
"""Of the minutes: for both releases together, and for holding them against each other."""


_CAMPAIGN = "campaign"
"""Under this name `Sides.seen` has the root causes that came up on the old release."""
_JUDGED = ("--oracle", "shadow,contract,liveness", "--seed", "2026", "--jobs", "1", "--shrink-seconds", "5", "--json")


def parts_of(sides: Sides) -> list[Part]:
    """What is asked about a release, and how."""
    both = ("--target", sides.old, "--target", sides.new)
    shared = 60 * sides.minutes
    campaign = f"{max(1.0, shared * CAMPAIGN_SHARE / 2):.0f}"
    parts = []
    if (family := family_of(sides.new)) is not None and family.here != family.version_in(sides.new):
        for spec in dict.fromkeys(filter(None, (sides.old, sides.new, sides.reference))):
            parts.append(Part(f"installing {spec}", ("targets", "install", spec), _read_install, (0,), plain=True))
    parts.append(Part("answers", ("targets", "check", sides.new, "--json"), _read_check))
    for spec, read in ((sides.old, _read_old_campaign), (sides.new, _read_campaign)):
        judged = ("campaign", "--target", spec, *_JUDGED, "--seconds", campaign, "--out", str(sides.out))
        parts.append(Part(f"campaign on {spec}", judged, read))
    if family_of(sides.new) is not None:
        parts.append(Part("findings", ("findings", *both, "--json"), _read_findings))
    seconds = f"{max(1.0, shared * DIFF_SHARE):.0f}"
    kept = str(sides.out / "differences")
    parts.append(
        Part("difference", ("diff", *both, "--seconds", seconds, "--seed", "2026", "--out", kept, "--json"), _read_diff)
    )
    for spec in (sides.old, sides.new) if sides.reference else ():
        asked = ("--target", sides.reference, "--check", str(DEVIATIONS), "--also", spec, "--json")
        read = _read_old_deviations if spec == sides.old else _read_deviations
        parts.append(Part(f"deviations of {spec}", ("deviations", *asked), read))
    if family_of(sides.new) is not None:  # last what takes longest
        parts.append(Part("scripts", ("findings", "--scripts", *both, "--json"), _read_findings))
    if sides.reference:
        parts.append(Part("theorems", (sides.old, sides.new), _read_proofs, module="fuzz.releases.verify_proofs"))
    return parts


def _read_install(said: Any, sides: Sides) -> PartNews:
    return PartNews(one_line(str(said).partition(";")[0]))


def _read_check(said: Any, sides: Sides) -> PartNews:
    told = PartNews(f"{plural(said['asked'], 'operation')} asked, {said['wrong']} answered in a wrong form")
    if said["wrong"]:
        told.new.append(f"{plural(said['wrong'], 'answer')} in a wrong form: `blockproof targets check {sides.new}`")
    return told


def _read_old_campaign(said: Any, sides: Sides) -> PartNews:
    (row,) = said["targets"]
    sides.seen[_CAMPAIGN] = {one["root_cause"]: "" for one in row["findings"]}
    return _of_campaign(row)


def _of_campaign(row: Any) -> PartNews:
    problem = row["problem"] or row["tested_nothing"]
    open_ones = [f"campaign on {row['target']}: {one_line(problem)}"] if problem else []
    return PartNews(
        f"{plural(row['operations'], 'operation')}, {plural(len(row['findings']), 'finding')}", open=open_ones
    )


def _read_campaign(said: Any, sides: Sides) -> PartNews:
    """What came up on the new release, and not on the old one, is asked of the old one again."""
    (new,) = said["targets"]
    told = _of_campaign(new)
    known = {one["root_cause"] for one in new["findings"]} - {NEW}
    before = sides.seen.get(_CAMPAIGN, {}).keys() - {NEW}
    for one in new["findings"]:
        root = one["root_cause"]
        if root not in before:
            why = "explained by no known flaw" if root == NEW else root
            what = f"{one['observable']} at {one['operation']} ({one['attention']}), {why}"
            text = f"{what}: `{one['command']}`\n\n{_block(one['text'])}"
            told.unexplained.append(Unexplained(text, one["trace"], (one["observable"], one["operation"])))
    told.still += [f"{root} (campaign)" for root in sorted(known & before)]
    told.changed += [f"{root} came up on {sides.old} only (campaign)" for root in sorted(before - known)]
    return told


def _block(text: str) -> str:
    return "\n".join(["```", *text.splitlines(), "```"])


def _read_findings(said: Any, sides: Sides) -> PartNews:
    told = PartNews()
    rows = said["observed"]
    for name, row in sorted(rows.items()):
        old, new = row.get(sides.old, ""), row.get(sides.new, "")
        if new == SHOWS:
            if old == SHOWS:
                told.still.append(name)
            else:
                told.new.append(f"{name}: {old or '-'}, now {new}")
        elif old == SHOWS and new == NOTHING:
            told.fixed.append(name)
        elif old != new:
            told.changed.append(f"{name}: {old or '-'}, now {new or '-'}")
        if new not in (SHOWS, NOTHING):
            told.open.append(f"{name}: {new or 'not observed'}")
    shown = sum(row.get(sides.new) == SHOWS for row in rows.values())
    told.figures = f"{plural(len(rows), 'observation')}, {shown} show a defect"
    return told


def _read_old_deviations(said: Any, sides: Sides) -> PartNews:
    sides.seen[sides.old] = {one["id"]: one["verdict"] for one in said}
    return PartNews(_of_deviations(said))


def _read_deviations(said: Any, sides: Sides) -> PartNews:
    told, before = PartNews(_of_deviations(said)), sides.seen.get(sides.old, {})
    for one in said:
        old, new = before.get(one["id"], "not observed"), one["verdict"]
        if (old, new) == (SAME, ALIKE):
            told.new.append(f"deviation {one['id']} is back: {one['text']}")
        elif (old, new) == (ALIKE, SAME):
            told.fixed.append(f"deviation {one['id']}")
        elif old != new:
            told.changed.append(f"deviation {one['id']}: {old}, now {one['text']}")
    return told


def _of_deviations(said: Any) -> str:
    counts = {verdict: sum(one["verdict"] == verdict for one in said) for verdict in (SAME, ALIKE)}
    return f"{len(said)} traces; {counts[SAME]} as the rule, {counts[ALIKE]} as the reference"


def _read_proofs(said: Any, sides: Sides) -> PartNews:
    if isinstance(said, str):
        return PartNews(said, open=[f"theorems: {said}"])
    told = PartNews(said["text"])
    told.changed += [f"function under a theorem: {name}" for name in said["changed"]]
    for name, each in said["theorems"].items():
        if each["old"] != each["new"]:
            line = f"theorem {name}: {each['old']}, now {each['new']}"
            lists = {"refuted": told.new, "proved": told.fixed}
            settled = {each["old"], each["new"]} <= {"proved", "refuted"}
            (lists[each["new"]] if settled else told.open).append(line)
    return told


def _read_diff(said: Any, sides: Sides) -> PartNews:
    told = PartNews()
    for compared in said["comparisons"]:
        for one in compared["situations"]:
            where = f"by {compared['compared']}, in {plural(one['runs'], 'run')}"
            told.changed.append(f"{one['situation']} at {one['operation']}, {where}")
    operations = sum(compared["operations"] for compared in said["comparisons"])
    told.figures = f"{plural(operations, 'operation')} on both, {plural(len(told.changed), 'situation')} that differ"
    return told
