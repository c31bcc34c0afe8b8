"""A campaign that is told at its end: its store is a file that is removed then, and all targets have the same share."""

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ..engines.story_pages import page_beside_story
from ..findings.interruption import interrupted_by
from ..findings.words import plural
from ..findings.writing import alone, write_file
from ..page.files import CAMPAIGN_FILE, before_name
from ..page.live import LivePage, News
from ..reports.campaign import CampaignDocument, CampaignRow
from ..reports.progress import steps
from .arms import next_share
from .conduct import Conductor, Session, conduct
from .executor import LocalExecutor
from .rows import document, row_on
from .settings import CampaignLimits, Settings
from .store import Ended, Store
from .stories import SIMULATION


def run_once(settings: Settings, jobs: int, say: Callable[[str], None], page: LivePage | None) -> CampaignDocument:
    """Run a campaign whose settings have `shares`; what it finds is written to the folder of the settings. Ctrl-C ends
    it with what there is. `say` is told how far each target is, and `page` all that there is so far."""
    over, said = set[str](), dict[str, tuple[int, int, int, bool]]()
    with TemporaryDirectory(prefix="blockproof-") as folder, steps(len(settings.targets), "target") as advance:
        store, executor = Store(Path(folder) / "campaign.sqlite", settings), LocalExecutor(jobs)

        def changed(conductor: Conductor, target: str) -> None:
            row = row_on(store, target, conductor.so_far.values())
            row.done &= next_share([one for one in conductor.standings.values() if one.arm.target == target]) is None
            (over.add if row.done or row.problem else over.discard)(target)
            ended = sum(kept.row.target == target for kept in store.rows)
            now = ended, len(row.cells), len(row.findings), target in over
            if said.get(target) != now:
                said[target] = now
                advance(len(over), target)
                say(progress_line(row))
            if page is not None:
                page.grown(lambda: _news(document(store, conductor.so_far.values()), over, settings))

        try:
            if page is not None:
                page.show(_news(document(store), over, settings))
            how = conduct(store, executor, Session(CampaignLimits(), say=say, on_change=changed))
            done = document(store, ended=how)
            if how is not Ended.INTERRUPTED and SIMULATION in settings.engines:
                with suppress(KeyboardInterrupt):
                    for row, found in done.found:
                        found.page = str(page_beside_story(Path(found.trace), say, row.target) or "")
        finally:
            executor.close()
            store.close()
    if page is not None:
        words = f"ended by {interrupted_by()}" if how is Ended.INTERRUPTED else "the campaign has ended"
        page.show(News("campaign", words, done, 1.0, ended=True))
    return done


def write_campaign(campaign: CampaignDocument, folder: Path) -> Path:
    """Write all of it as JSON into the folder, for `report`; what the campaign before wrote there stays beside it."""
    path = folder / CAMPAIGN_FILE
    with alone(path):
        if path.is_file():
            write_file(path.with_name(before_name(path)), [path.read_bytes()])
        write_file(path, campaign.text())
    return path


def progress_line(row: CampaignRow) -> str:
    """One line: how far a target has come."""
    counts = [plural(row.operations, "operation"), plural(len(row.cells), "attention type")]
    counts.append(plural(len(row.findings), "kind of finding", "kinds of findings"))
    return f"{row.target}: {', '.join(counts)}, {row.seconds:.0f} s, {row.ended('done', '...')}"


def _news(so_far: CampaignDocument, over: Collection[str], settings: Settings) -> News:
    """What its page is told."""
    most = settings.shares or CampaignLimits()

    def share(row: CampaignRow) -> float:
        pairs = ((row.operations, most.operations), (row.seconds, most.seconds))
        return 1.0 if row.target in over else min(1.0, max((done / all for done, all in pairs if all), default=0.0))

    words = f"{len(over)} of {plural(len(so_far.targets), 'target')} ended"
    return News("campaign", words, so_far, sum(map(share, so_far.targets)) / len(so_far.targets))
