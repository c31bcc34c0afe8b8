"""What the page of a campaign is told while the campaign goes on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..findings.interruption import interrupted_by
from ..findings.words import plural
from ..page.live import LivePage
from ..reports.pace import Pace
from .campaign import Orders, Row, as_they_are
from .campaign_report import as_json, keep_findings


class LiveCampaign:
    """Tells a page, if there is one, what the campaign has come to."""

    def __init__(
        self, page: LivePage | None, specs: Sequence[str], orders: Orders, folder: Path, say: Callable[[str], None]
    ) -> None:
        """`say` is told in a line if the server of the page is lost."""
        self._page, self._orders, self._folder, self._say = page, orders, folder, say
        self._rows = {spec: Row(spec) for spec in specs}
        self._pace = Pace()
        if page is not None:
            self._tell(*self._rows.values())

    def changed(self, row: Row) -> None:
        """A target has come to something; where it has ended, its findings are written, and their pages."""
        if self._page is not None:
            if row.done:
                keep_findings([row], self._folder, self._orders.plan.seed)
            self._tell(row)

    def grown(self, row: Row) -> None:
        """A target is so far."""
        if self._page is not None and self._pace.due:
            self._tell(row)
            if loss := self._page.loss():
                self._say(loss)

    def ended(self, rows: Sequence[Row]) -> None:
        """This is what came of it."""
        if self._page is not None:
            cut = any(row.interrupted for row in rows)
            words = f"ended by {interrupted_by()}" if cut else "the campaign has ended"
            told = {"title": "campaign", "words": words, "share": 1.0, "ended": True}
            self._page.show(told | {"campaign": as_json(rows)})

    def _tell(self, *grown: Row) -> None:
        assert self._page is not None
        with self._pace.telling():
            self._rows |= {row.target: row for row in grown}
            rows = list(self._rows.values())
            over = [one for one in rows if one.done or one.problem]
            shown = [one if one.done else replace(one, kept=as_they_are(one, self._orders)) for one in rows]
            words = f"{len(over)} of {plural(len(rows), 'target')} ended"
            share = sum(1.0 if one in over else self._share(one) for one in rows) / len(rows)
            told = {"title": "campaign", "words": words, "share": share}
            self._page.show(told | {"campaign": as_json(shown)})

    def _share(self, row: Row) -> float:
        """How far a target is, from 0 to 1."""
        plan = self._orders.plan
        pairs = ((row.operations, plan.operations), (row.seconds, plan.seconds))
        return min(1.0, max((done / most for done, most in pairs if most), default=0.0))
