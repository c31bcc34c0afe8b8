"""What the page of a campaign is told while the campaign goes on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..findings.interruption import interrupted_by
from ..findings.words import plural
from ..page.live import LivePage, News
from .campaign import Orders, Row, as_they_are
from .campaign_report import document, keep_findings


class LiveCampaign:
    """Tells a page, if there is one, what the campaign has come to."""

    def __init__(self, page: LivePage | None, specs: Sequence[str], orders: Orders, folder: Path) -> None:
        self._page, self._orders, self._folder = page, orders, folder
        self._rows = {spec: Row(spec) for spec in specs}
        if page is not None:
            page.show(self._told())

    def changed(self, row: Row) -> None:
        """A target has come to something; where it has ended, its findings are written, and their pages."""
        if self._page is not None:
            if row.done:
                keep_findings([row], self._folder, self._orders.plan.seed)
            self.grown(row)

    def grown(self, row: Row) -> None:
        """A target is so far."""
        if self._page is not None:
            self._rows[row.target] = row
            self._page.grown(self._told)

    def ended(self, rows: Sequence[Row]) -> None:
        """This is what came of it."""
        if self._page is not None:
            cut = any(row.interrupted for row in rows)
            words = f"ended by {interrupted_by()}" if cut else "the campaign has ended"
            self._page.show(News("campaign", words, document(rows), 1.0, ended=True))

    def _told(self) -> News:
        rows = list(self._rows.values())
        over = [one for one in rows if one.done or one.problem]
        shown = [one if one.done else replace(one, kept=as_they_are(one, self._orders)) for one in rows]
        words = f"{len(over)} of {plural(len(rows), 'target')} ended"
        share = sum(1.0 if one in over else self._share(one) for one in rows) / len(rows)
        return News("campaign", words, document(shown), share)

    def _share(self, row: Row) -> float:
        """How far a target is, from 0 to 1."""
        plan = self._orders.plan
        pairs = ((row.operations, plan.operations), (row.seconds, plan.seconds))
        return min(1.0, max((done / most for done, most in pairs if most), default=0.0))
