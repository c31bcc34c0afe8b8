"""Mistakes planted into the transfers of a run, and into what is reported of them, to check the judges of these runs.

Each is made in the worker's half, where a real one could be: what the scheduler half of the release decides stays as it
is.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from .scheduler_real_transfers import Copy, Transfer


def _told_too_early(run: Any, loads: bool) -> None:
    """The end of a transfer is told while its copies are still to come."""
    transfers = run.scheduler.connector.link.transfers
    ended, begin = transfers.ended, transfers.begin
    early: list[Hashable] = []

    def told(direction: bool) -> list[Hashable]:
        if direction is not loads:
            return list(ended(direction))
        ended(direction)
        names, early[:] = list(early), []
        return names

    def begun(name: Hashable, direction: bool, copies: Any, silent: int = 0) -> None:
        begin(name, direction, copies, silent)
        if direction is loads:
            early.append(name)

    transfers.ended, transfers.begin = told, begun


def _load_told_too_early(run: Any) -> None:
    _told_too_early(run, True)


def _store_told_too_early(run: Any) -> None:
    _told_too_early(run, False)


def _store_not_waited_for(run: Any) -> None:
    """A worker that is told to wait for transfers goes on at once."""
    run.scheduler.connector.link.transfers.finish = lambda names=None: None


def _load_into_wrong_block(run: Any) -> None:
    """What belongs into a load's first block lands in its last one, and the other way round."""
    transfers = run.scheduler.connector.link.transfers
    begin = transfers.begin

    def begun(name: Hashable, loads: bool, copies: Any, silent: int = 0) -> None:
        chosen = list(copies)
        if loads and len(chosen) > 1:
            chosen = _swapped(transfers.memory, chosen)
        begin(name, loads, chosen, silent)

    transfers.begin = begun


def _swapped(memory: Any, copies: list[Copy]) -> list[Copy]:
    """The same copies; behind the last of them, the contents of the first and of the last block are exchanged."""
    first, last = copies[0].block, copies[-1].block

    def act() -> str:
        objections = [objection for copy in copies if (objection := copy.act())]
        pages = memory.page(first), memory.page(last)
        memory.set_page(last, pages[0])
        memory.set_page(first, pages[1])
        return objections[0] if objections else ""

    return [Copy(first, act)]


def _report_lost(run: Any, field: str) -> None:
    """This part of the reports does not reach the scheduler."""
    link = run.scheduler.connector.link
    report = link.worker.report
    link.worker.report = lambda: {name: value for name, value in report().items() if name != field}


def _arrival_lost(run: Any) -> None:
    _report_lost(run, "finished_recving")


def _sending_lost(run: Any) -> None:
    _report_lost(run, "finished_sending")


def _store_lost(run: Any) -> None:
    _report_lost(run, "kv_connector_worker_meta")


def _arrival_told_twice(run: Any) -> None:
    """Every report of requests that have arrived is given again in the step behind it."""
    link = run.scheduler.connector.link
    report = link.worker.report
    before: list[set[str]] = [set()]

    def twice() -> Mapping[str, object]:
        fields = dict(report())
        again, before[0] = before[0], set(fields.get("finished_recving", ()))
        return fields | ({"finished_recving": before[0] | again} if before[0] | again else {})

    link.worker.report = twice


def _never_carried_out(run: Any) -> None:
    """Transfers begin and never end."""
    link = run.scheduler.connector.link

    def carry_out(transfer: Transfer, copies: Any) -> None:
        """Nothing."""

    link.transfers._carry_out = carry_out


FAULTS: Mapping[str, Callable[[Any], None]] = {
    fault.__name__[1:].replace("_", "-"): fault
    for fault in (
        _load_told_too_early,
        _store_told_too_early,
        _store_not_waited_for,
        _load_into_wrong_block,
        _arrival_lost,
        _sending_lost,
        _store_lost,
        _arrival_told_twice,
        _never_carried_out,
    )
}
"""Mistakes by name."""
