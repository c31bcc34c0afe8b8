"""The page of a run while it goes on: what it shows, that it is always whole, and that the run needs nothing of it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines import story_fuzzing
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.page import live
from blockproof.fuzz.page.html import document_in, page
from blockproof.fuzz.page.live import News
from blockproof.fuzz.reports.campaign import CampaignDocument, CampaignFound, CampaignRow
from blockproof.fuzz.reports.document import ReportDocument, TraceDocument
from blockproof.fuzz.reports.progress import Pace
from blockproof.fuzz.reports.run import RunDocument

from .drawing import TWICE, shown

pytest.importorskip("jinja2", reason="no page: pip install '/path/to/blockproof[report]'")
NASTY = "<img src=x onerror=alert(1)></script>\n\ndata: x\u202e"
FOUND = {"text": NASTY, "severity": "leak", "oracle": "contract", "observable": NASTY, "operation": "Free"}


def told(run=(), **changed):
    """What a run tells."""
    whole = {"target": NASTY, "runs": 3, "operations": 60, "seconds": 20.0, "findings": [], "reached": {NASTY: 2}}
    whole |= {"warnings": [NASTY], "floors": {"situations": {"hit": 3}}, **dict(run)}
    return News("fuzz", "running", msgspec.convert(whole, RunDocument), **changed)


def written(path):
    """The document of the page in this file, which must be whole."""
    text = path.read_text()
    assert text.endswith("</html>\n")
    return json.loads(re.search(r'id="document">(.*?)</script>', text, re.DOTALL)[1])


def test_what_cannot_be_shown_is_told_once_and_ends_nothing(tmp_path):
    said, path = [], tmp_path / "page.html"
    page = live.LivePage(path, said.append)
    for seconds in ([2, 1], [0, 1]):
        page.show(told(run={"history": {"seconds": seconds}}))
    assert written(path)["verdict"] == "nothing was told yet"
    page.show(told())
    assert written(path)["verdict"] == "nothing was found so far"
    page.show(told(run={"history": {"seconds": [2, 1]}}))
    assert len(said) == 2
    assert all("the page does not show it" in line for line in said)


def test_nothing_is_judged_before_the_end():
    state = live.LiveDocuments(Path())
    running, ended = state.read(told()), state.read(told(ended=True))
    assert [table.marks for table in (running.tables[0], ended.tables[0])] == [[""], ["bad"]]
    assert running.tables[0].note == "1 floor of 1 not reached yet"
    assert (running.mood, ended.mood, ended.progress.ended) == ("note", "good", True)
    assert (state.read(told(run={"seconds": 1.0})).notes, running.notes) == ([], [NASTY])
    history = {"seconds": [0, 10, 19, 20], "operations": [0, 100, 190, 195], "lookups": [0] * 4, "hits": [0] * 4}
    jobs = [["1", "3", "2", "20", "1", "running"]]
    cut, whole = (state.read(told(run={"history": history}, jobs=one)) for one in (jobs, []))
    assert (cut.tables[0].title, cut.charts[0].series[0].xs) == ("Processes", [0, 10])
    assert whole.charts[0].series[0].xs == [0, 10, 19, 20]
    rows = [CampaignRow("one", cells={"full": told().document}), CampaignRow("two")]
    campaign = News("campaign", "", CampaignDocument(rows))
    document = state.read(campaign)
    assert [row[-1] for row in document.tables[0].rows] == ["not yet", "not begun"]
    rows[0].findings = [msgspec.convert(FOUND, CampaignFound)]
    document = state.read(campaign)
    assert (document.verdict, document.cards[0].why_not) == ("1 finding so far", live.WAITING[1])


@pytest.mark.parametrize("how", ["ended", "lost"])
def test_the_last_document_stands_alone(how, tmp_path):
    trace = shown(TWICE, "fault:free-order-reversed")
    (tmp_path / "good.html").write_text(page(trace))
    (tmp_path / "bad.html").write_text("<p>no page of ours")
    names = [str(tmp_path / name) for name in ("good.html", "bad.html", "gone.html")]
    findings = [{**FOUND, "reproduction": {"page": name}} for name in names]
    state = live.LiveDocuments(tmp_path)
    document = state.read(told(run={"findings": findings}, ended=how == "ended"))
    if how == "lost":
        assert [card.page for card in document.cards] == ["good.html", "bad.html", "gone.html"]
        document = state.lost()
    assert [card.trace for card in document.cards] == [0, -1, -1]
    assert [card.why_not for card in document.cards] == ["", *(f"its page: {name}" for name in names[1:])]
    assert [card.page for card in document.cards] == [""] * 3
    assert msgspec.json.encode(document.traces[0]) == msgspec.json.encode(trace)
    assert document.progress.ended
    assert isinstance(document_in(page(document.traces[0])), TraceDocument)


def test_a_page_leads_to_findings_by_files_alone():
    """Whatever a file is called, the address is one of a file, seen from where the page lies."""
    state = live.LiveDocuments(Path("out/pages"))
    names = ["out/found/a.html", "out/pages/javascript:alert(1).html", "out/pages/a b#c?d.html"]
    found = [{**FOUND, "reproduction": {"page": name}} for name in names]
    cards = state.read(told(run={"findings": found})).cards
    assert [card.page for card in cards] == ["../found/a.html", "javascript%3Aalert%281%29.html", "a%20b%23c%3Fd.html"]


def test_telling_takes_a_hundredth_of_the_time_at_most(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for took, then in ((0.0, 1.0), (0.005, 1.0), (0.5, 50.0)):
        told = Pace()
        assert told.due
        with told.telling():
            now += took
        now += then - 0.001
        assert not told.due
        now += 0.002
        assert told.due
        assert told.every == pytest.approx(then)


def test_a_page_that_takes_long_is_written_seldom_and_says_so(tmp_path, monkeypatch):
    now, path, asked = 100.0, tmp_path / "page.html", []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    page = live.LivePage(path, print)

    def slow():
        nonlocal now
        now += 0.4
        asked.append(now)
        return told()

    for _ in range(500):
        page.grown(slow)
        now += 1.0
    assert 10 <= len(asked) <= 13
    assert written(path)["progress"]["every"] == pytest.approx(40.0)


def test_whoever_reads_it_finds_a_whole_page(tmp_path):
    path, over, read = tmp_path / "page.html", threading.Event(), []
    page = live.LivePage(path, print)

    def look():
        while not over.is_set():
            read.append(written(path)["headline"])

    reader = threading.Thread(target=look)
    reader.start()
    for runs in range(40):
        page.show(told(run={"runs": runs, "target": "x" * 200_000}))
    over.set()
    reader.join()
    assert len(set(read)) > 1
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_a_page_that_cannot_be_written_costs_the_run_nothing(tmp_path, capsys, monkeypatch):
    """Somebody puts a folder in its place, as if to spite it."""
    usual, path = live.LivePage.__init__, tmp_path / "page.html"

    def init(self, *given):
        usual(self, *given)
        path.unlink()
        (path / "in the way").mkdir(parents=True)

    monkeypatch.setattr(live.LivePage, "__init__", init)
    assert main(["fuzz", "--operations", "500", "--seed", "3", "--live", str(path), "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("the page does not show it" in line and "the run goes on" in line for line in lines) == 1


class Recorder(live.LivePage):
    """A page that nobody writes; it is told as often as possible."""

    last: "Recorder"
    due = True

    def __init__(self, *_):
        self.told = []
        Recorder.last = self

    def __exit__(self, *_):
        pass

    def grown(self, tell):
        self.show(tell())

    def show(self, told):
        self.told.append(deepcopy(told))


@pytest.fixture
def recorder(monkeypatch):
    """What a page is told, instead of one."""
    monkeypatch.setattr(live, "LivePage", Recorder)
    return Recorder


def documents(recorder):
    """What the page would have shown."""
    state = live.LiveDocuments(Path())
    return [state.read(told) for told in recorder.last.told]


def test_a_run_tells_what_it_has_come_to(recorder, tmp_path, capsys):
    run = ["fuzz", "--target", "fault:free-order-reversed", "--keep-going", "--operations", "900", "--seed", "3"]
    assert main([*run, "--live", "here.html", "--json", "--out", str(tmp_path / "found")]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == "live: here.html, written anew while it goes on"
    printed, told = json.loads(out), recorder.last.told
    assert json.loads(told[-1].document.text()) == printed
    shown = documents(recorder)
    operations = [one.document.operations for one in told]
    assert operations == sorted(operations)
    assert operations[0] < operations[-1]
    assert not any(one.progress.ended for one in shown[:-1])
    assert [one.share for one in told if one.words == "running"][-1] == told[-1].share == 1.0
    assert any("shrinking" in one.words for one in told)
    first = next(one.document.findings for one in told if one.document.findings)
    assert first[0].reproduction.page.endswith("_whole.html")
    assert Path(first[0].reproduction.trace).is_file()
    assert [card.trace for card in shown[-1].cards] == list(range(len(printed["findings"])))


def test_what_several_processes_do_is_told_together(recorder, tmp_path, capsys):
    run = ["fuzz", "--target", "impl", "--jobs", "2", "--operations", "1200", "--seed", "3", "--live", "x", "--json"]
    assert main([*run, "--attention", "full", "--out", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    told = recorder.last.told
    assert json.loads(told[-1].document.text()) == printed
    rows = next(one.jobs for one in reversed(told) if one.jobs)
    assert [row[1] for row in rows] == ["3", "4"]
    assert sum(int(row[3].replace(",", "")) for row in rows) <= printed["operations"]
    assert told[-2].document.operations == printed["operations"]
    assert all(isinstance(one, ReportDocument) for one in documents(recorder))


def test_a_campaign_tells_how_far_its_targets_are(recorder, tmp_path):
    run = ["campaign", "--target", "fault:free-order-reversed", "--operations", "1500", "--shrink-seconds", "1"]
    assert main([*run, "--attention", "full", "--seed", "3", "--live", "x.html", "--out", str(tmp_path)]) == 1
    shown, told = documents(recorder), recorder.last.told
    (found, *_) = [one for one in shown if one.cards]
    assert found.cards[0].why_not == live.WAITING[1]
    assert [one.share for one in told] == sorted(one.share for one in told)
    (place, done) = next((place, one) for place, one in enumerate(shown) if one.cards and one.cards[0].page)
    assert not done.progress.ended
    assert json.loads(told[-1].document.text()) == json.loads((tmp_path / "campaign.json").read_text())
    assert shown[-1].cards[0].trace == 0
    assert told[place].document.targets[0].findings == told[-1].document.targets[0].findings


def test_schedulers_tell_what_they_have_come_to(recorder, monkeypatch):
    def words(*arguments):
        assert json.loads(arguments[-1])["tells"]
        so_far = {"stories": 1, "steps": 40, "seconds": 20.0, "reached": {NASTY: 2}}
        found = {"name": NASTY, "judge": "contract", "known": "", "what": NASTY, "story": {}}
        lines = [{"so_far": so_far}, {"found": found}, {"progress": {"steps": 40, "stories": 1}}]
        code = f"for line in {list(map(json.dumps, lines))!r}: print(line)"
        return [sys.executable, "-c", code]

    python = SimpleNamespace(words=words, environment=dict(os.environ))
    monkeypatch.setattr(story_fuzzing, "python_for", lambda target, at: nullcontext(python))
    outcome = story_fuzzing.simulate("a.py:one", StoryTask(steps=80), None, lambda line: None, Recorder())
    assert outcome.exit_code == 1
    assert [(one.words, one.share) for one in recorder.last.told] == [
        ("starting", 0.0),
        ("running", 0.5),
        ("running", 0.5),
        ("the run has ended", 1.0),
    ]
    shown = documents(recorder)
    assert [one.mood for one in shown] == ["note", "note", "bad", "bad"]
    assert "40 scheduler steps" in shown[-1].headline
    assert shown[-1].progress.ended


def test_a_run_that_breaks_off_says_so_on_its_page(tmp_path, capsys):
    path = tmp_path / "page.html"
    run = ["fuzz", "--operations", "100", "--seed", "3", "--out", str(tmp_path), "--live", str(path)]
    assert main([*run, "--attention", "nonsense"]) == 2
    assert not path.exists()
    with live.LivePage(path, print) as page:
        page.show(told())
    last = written(path)
    assert last["progress"]["ended"]
    assert "without a last word" in last["progress"]["words"]
    assert last["verdict"] == "nothing was found so far"
    assert main(run) == 0
    assert written(path)["progress"]["words"] == "the run has ended"
    assert written(path)["verdict"].startswith("no difference in ")


def test_a_run_that_is_killed_leaves_when_it_wrote_last(tmp_path):
    """It cannot say that it has ended: the page does, by what it says here (`test_live_browser`)."""
    path, begin = tmp_path / "page.html", time.time()
    words = ["fuzz", "--seconds", "300", "--seed", "3", "--out", str(tmp_path), "--live", str(path)]
    run = subprocess.Popen([sys.executable, "-m", "blockproof.fuzz.cli", *words], stdout=subprocess.DEVNULL)
    try:
        while not (path.exists() and written(path)["progress"]["words"] == "running"):
            assert run.poll() is None
            time.sleep(0.05)
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    told = written(path)["progress"]
    assert not told.get("ended")
    assert begin <= told["written"] <= time.time()
    assert told["every"] >= live.EVERY_S


def test_a_file_of_a_report_does_not_load_itself():
    assert "location.reload" not in page(shown(TWICE))
    document = live.LiveDocuments(Path()).read(told())
    assert "location.reload" in page(document)
    document.progress = None
    assert "location.reload" not in page(document)


def test_wrong_use_is_told_in_a_line(tmp_path, monkeypatch, capsys):
    where = str(tmp_path / "page.html")
    assert main(["fuzz", "--operations", "10", "--live", str(tmp_path)]) == 2
    assert main(["campaign", "--store", "a", "--target", "impl", "--live", where]) == 2
    for command in ("fuzz", "campaign", "simulate"):
        assert main([command, "--serve"]) == 2
        assert main([command, "--port", "8000"]) == 2
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["campaign", "--target", "impl", "--operations", "10", "--live", where]) == 2
    folder, stored, *renamed, missing = capsys.readouterr().err.splitlines()
    assert "--live" in folder
    assert "--live: not with --store" in stored
    assert all("--live" in line for line in renamed)
    assert len(renamed) == 6
    assert "blockproof[report]" in missing
