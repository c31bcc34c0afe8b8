"""What an engine hears of its transfers, and when: reports may come late, twice, never, or of what nobody knows.

The device knows when a transfer is over. Between it and the engine stand workers that report; a story says for one
report after the other what becomes of it. Only what the engine says it survives is drawn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .protocol import StepResults

LONGEST = 16
"""Rounds that a transfer takes at most."""
IN_TIME = 8
"""A report that comes so many rounds late is not lost."""
TOO_LATE = 32
"""A report that comes so many rounds late is lost: by then one may have given up."""
SURVIVES: Mapping[str, str] = {
    "late": f"the report of a transfer comes up to {IN_TIME} rounds after its end",
    "doubled": "it comes twice, the second time up to 20 rounds later",
    "strange": "a report comes of an id that the engine has never told",
    "reordered": "of transfers that end in one round, the last is reported first",
    "lost": f"it never comes, or {TOO_LATE} rounds late; else within {LONGEST + IN_TIME} of the beginning",
}
"""What an engine may name in its attribute `survives`."""
GIVEN_UP = 30
"""Rounds after a lost report in which the engine may wait for it."""


@dataclass
class Heard:
    """What the engine is told in a round."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    by_worker: list[tuple[int, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.done or self.failed or self.by_worker)

    def beside(self, results: StepResults) -> StepResults:
        """The results of a step with this."""
        done, failed, workers = tuple(self.done), tuple(self.failed), tuple(self.by_worker)
        return replace(results, transferred=done, failed=failed, by_worker=workers) if self else results


class TransferReports:
    """What becomes of the reports of one run."""

    def __init__(self, pattern: Sequence[str], workers: int, survives: Iterable[str]) -> None:
        """`pattern`: for one report after the other, repeated: "" for as it is, "late 3", "twice 5", "strange",
        "reordered", "lost" or "lost 32": so late that it counts as lost. What the engine does not survive is left out.
        """
        known = set(survives)
        self._pattern = [one if not one or _NEEDS[one.split()[0]] in known else "" for one in pattern] or [""]
        self._workers, self._doubles = workers, "doubled" in known
        self._number = 0
        self._later: list[tuple[int, str, bool, int]] = []
        """Round, id, whether it ended well, and worker."""
        self._ahead: set[str] = set()
        self._quiet_from = 0
        self.lost: list[str] = []
        """Of whose end nothing will be heard in time; to be emptied by who reads it."""
        self.odd = 0
        """Reports that did not come as they should."""

    def busy(self, now: int) -> bool:
        """True while a report is still to come, or the engine may wait for one."""
        return bool(self._later) or now < self._quiet_from

    def tell(self, done: Iterable[str], failed: Iterable[str], running: Sequence[str], now: int) -> Heard:
        """What is heard in this round, in which these have ended; `running`: those that are under way."""
        heard, turned = Heard(), False
        for id, well in (*((id, True) for id in done), *((id, False) for id in failed)):
            for worker in range(self._workers if well else 1):
                if worker == 0 and id in self._ahead and not self._doubles and well:
                    continue  # has reported
                turned |= self._report(heard, id, well, worker, now)
        for one in [one for one in self._later if one[0] <= now]:
            self._later.remove(one)
            self._say(heard, *one[1:])
        if self._workers > 1:
            for id in running:  # the first worker is done with its part before the others
                if id not in self._ahead or self._doubles:
                    self._say(heard, id, True, 0)
                self._ahead.add(id)
        if turned:
            for told in (heard.done, heard.failed, heard.by_worker):
                told.reverse()
        return heard

    def _report(self, heard: Heard, id: str, well: bool, worker: int, now: int) -> bool:
        """What becomes of the next one. True if the round's reports come the other way round."""
        what, _, many = self._pattern[self._number % len(self._pattern)].partition(" ")
        self._number += 1
        self.odd += bool(what)
        later = int(many or 0)
        if what == "lost":
            self.lost.append(id)
            self._quiet_from = max(self._quiet_from, now + GIVEN_UP)
        if what in ("late", "twice") or (what == "lost" and later):
            self._later.append((now + later, id, well, worker))
        if what not in ("late", "lost"):
            self._say(heard, id, well, worker)
        if what == "strange":
            self._say(heard, f"nobody-{self._number}", well, worker)
        return what == "reordered"

    def _say(self, heard: Heard, id: str, well: bool, worker: int) -> None:
        if not well:
            heard.failed.append(id)
        elif self._workers > 1:
            heard.by_worker.append((worker, id))
        else:
            heard.done.append(id)


_NEEDS: Mapping[str, str] = {
    "late": "late",
    "twice": "doubled",
    "strange": "strange",
    "reordered": "reordered",
    "lost": "lost",
}
"""What an engine must survive for each word of a pattern."""


def patterns(survives: Iterable[str]) -> tuple[str, ...]:
    """What may become of a report of such an engine, by word of `SURVIVES`, as it is drawn."""
    words = {
        "late": ("late 1", "late 3", f"late {IN_TIME}"),
        "doubled": ("twice 0", "twice 1", "twice 4", "twice 20"),
        "strange": ("strange",),
        "reordered": ("reordered",),
        "lost": ("lost", f"lost {TOO_LATE}"),
    }
    return tuple(word for name in sorted(survives) for word in words[name])
