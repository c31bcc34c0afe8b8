"""The page of a run while it goes on: who may see it, what it shows, and that the run needs nothing of it."""

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines import story_fuzzing
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.page import live, live_document, live_server
from blockproof.fuzz.page.document import ReportDocument, TraceDocument
from blockproof.fuzz.page.html import document_in, page
from blockproof.fuzz.reports import pace

from .drawing import TWICE, shown

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in live.NEEDED), reason="no server: pip install '/path/to/blockproof[serve]'"
)
TOKEN, PORT, NASTY = "t0ken" * 8, 7777, "<img src=x onerror=alert(1)></script>\n\ndata: x\u202e"
FOUND = {"text": NASTY, "severity": "leak", "oracle": "contract", "observable": NASTY, "operation": "Free"}


def told(**changed):
    """What a run tells."""
    run = {"target": NASTY, "runs": 3, "operations": 60, "seconds": 20.0, "findings": [], "reached": {NASTY: 2}}
    run |= {"warnings": [NASTY], **changed.pop("run", {})}
    return {"title": "fuzz", "words": "running", "run": run, "floors": {"situations": {"hit": 3}}, **changed}


def line(**changed):
    return json.dumps(told(**changed)).encode()


async def ask(app, path, method="GET", hosts=(f"127.0.0.1:{PORT}",)):
    """Status, headers and body of an answer."""
    headers, body = {}, b""

    async def receive():
        await asyncio.sleep(3600)

    async def send(message):
        nonlocal body
        body += message.get("body", b"")
        headers.update({name.decode(): value.decode() for name, value in message.get("headers", [])})
        headers.setdefault("status", message.get("status"))

    scope = {"type": "http", "method": method, "path": path, "headers": [(b"host", host.encode()) for host in hosts]}
    scope |= {
        "raw_path": path.encode(errors="replace"),
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT)}
    await app(scope, receive, send)
    return headers.pop("status"), headers, body


def apart(coroutine):
    """What it returns: in a thread of its own, since a browser's driver may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def problems(folder):
    """What is wrong with the server that shows a run with a finding, whose page lies in this folder."""
    (folder / "found.html").write_text(page(shown(TWICE)))
    (folder / "secret.html").write_text("secret")
    found = {**FOUND, "reproduction": {"page": str(folder / "found.html")}}
    state = live_server.Shown()
    state.put(state.live.read(line(run={"findings": [found]})))
    state.document.progress.ended = True
    (name,) = state.live.pages
    app = live_server.application(state, TOKEN, PORT)

    async def all_of_them():
        return {problem async for problem in _problems(app, f"/{TOKEN}/", f"finding/{name}", folder)}

    return apart(all_of_them())


async def _problems(app, root, named, folder):
    for path in (
        "/",
        f"/{TOKEN[:-1]}/",
        f"/{TOKEN}x/",
        f"/{TOKEN.upper()}/",
        "/é\udc80/",
        f"//{TOKEN}/",
        "/favicon.ico",
    ):
        if (await ask(app, path))[0::2] != (404, b""):
            yield "token"
    mine = f"127.0.0.1:{PORT}"
    for hosts in (("evil.example",), (f"evil.example:{PORT}",), ("127.0.0.1",), (), (mine, mine), (f"{mine}.evil",)):
        if (await ask(app, root, hosts=hosts))[0::2] != (403, b""):
            yield "host"
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"):
        if (await ask(app, root, method))[0::2] != (405, b""):
            yield "method"
    secret = str(folder / "secret.html")
    for path in ("secret.html", "../secret.html", secret, f"/{secret}", "..%2fsecret.html", named + "/../secret.html"):
        if (await ask(app, f"{root}finding/{path}"))[0] != 404:
            yield "path"
    for path, kind in (("", "text/html"), ("events", "text/event-stream"), (named, "text/html")):
        for method in ("GET", "HEAD"):
            status, headers, body = await ask(app, root + path, method, hosts=(f"localhost:{PORT}",))
            policy = headers.pop("content-security-policy", "")
            if status != 200 or not headers["content-type"].startswith(kind):
                yield "answer"
            if "default-src 'none'" not in policy or "frame-ancestors 'none'" not in policy or "unsafe" in policy:
                yield "policy"
            if ("connect-src 'self'" in policy) != (path == ""):
                yield "policy"
            if headers.get("cache-control") != "no-store" or headers.get("referrer-policy") != "no-referrer":
                yield "kept"
            if method == "GET" and path == "" and (body.count(b"</script>") != 2 or b"<img" in body):
                yield "markup"
            if method == "GET" and path == "events" and (body.count(b"\n") != 2 or not body.endswith(b"}\n\n")):
                yield "markup"
    if (await ask(app, root.rstrip("/")))[:2][0] != 307:
        yield "answer"


class Anything:
    def __contains__(self, one):
        return True


class ByName(dict[str, Path]):
    """A server that takes a name for a path."""

    def get(self, name, otherwise=None):
        return Path(super().get(name) or next(iter(self.values())).with_name(name))


def any_host(gate, inner, token, port):
    gate._inner, gate._token, gate._hosts = inner, token.encode(), Anything()


def by_name(self):
    self.pages = ByName()


def test_nobody_else_sees_anything(tmp_path):
    assert problems(tmp_path) == set()


@pytest.mark.parametrize(
    ("where", "name", "fault", "problem"),
    [
        (secrets, "compare_digest", lambda given, token: token.startswith(given), "token"),
        (secrets, "compare_digest", lambda given, token: given.lower() == token.lower(), "token"),
        (live_server.Gate, "__init__", any_host, "host"),
        (live_server, "METHODS", ("GET", "HEAD", "POST"), "method"),
        (live_document.Live, "__init__", by_name, "path"),
        (live_server, "_with_headers", lambda message: message, "kept"),
        (live_server, "policy", lambda *_, **__: "default-src 'self' 'unsafe-inline'", "policy"),
        (live_server, "page", lambda document, live: document.cards[0].text, "markup"),
        (msgspec.json, "encode", lambda document: (NASTY if document.cards else "x").encode(), "markup"),
    ],
)
def test_a_planted_mistake_is_noticed(where, name, fault, problem, tmp_path, monkeypatch):
    monkeypatch.setattr(where, name, fault)
    assert problem in problems(tmp_path)


def test_what_says_nothing_is_passed_over():
    state = live_document.Live()
    for nonsense in (b"", b"[]", b"{", b"[" * 100_000, b'{"title": 1}', line(run={"history": {"seconds": [2, 1]}})):
        with pytest.raises((msgspec.MsgspecError, ValueError, RecursionError)):
            state.read(nonsense)
    assert state.lost() is None
    assert state.read(line()).verdict == "nothing was found so far"


def test_nothing_is_judged_before_the_end():
    state = live_document.Live()
    running, ended = state.read(line()), state.read(line(ended=True))
    assert [table.marks for table in (running.tables[0], ended.tables[0])] == [[""], ["bad"]]
    assert running.tables[0].note == "1 floor of 1 not reached yet"
    assert (running.mood, ended.mood, ended.progress.ended) == ("note", "good", True)
    assert (state.read(line(run={"seconds": 1.0})).notes, running.notes) == ([], [NASTY])
    history = {"seconds": [0, 10, 19, 20], "operations": [0, 100, 190, 195], "lookups": [0] * 4, "hits": [0] * 4}
    jobs = [["1", "3", "2", "20", "1", "running"]]
    cut, whole = (state.read(line(run={"history": history}, jobs=one)) for one in (jobs, []))
    assert (cut.tables[0].title, cut.charts[0].series[0].xs) == ("Processes", [0, 10])
    assert whole.charts[0].series[0].xs == [0, 10, 19, 20]
    rows: list[dict[str, object]] = [{"target": "one", "cells": {"full": told()["run"]}}, {"target": "two"}]
    campaign = {"title": "campaign", "words": "", "campaign": rows}
    document = state.read(json.dumps(campaign).encode())
    assert [row[-1] for row in document.tables[0].rows] == ["not yet", "not begun"]
    rows[0]["findings"] = [FOUND]
    document = state.read(json.dumps(campaign).encode())
    assert (document.verdict, document.cards[0].why_not) == ("1 finding so far", live_document.WAITING[1])


@pytest.mark.parametrize("how", ["ended", "lost"])
def test_the_last_document_needs_no_server(how, tmp_path):
    trace = shown(TWICE, "fault:free-order-reversed")
    (tmp_path / "good.html").write_text(page(trace))
    (tmp_path / "bad.html").write_text("<p>no page of ours")
    names = [str(tmp_path / name) for name in ("good.html", "bad.html", "gone.html")]
    findings = [{**FOUND, "reproduction": {"page": name}} for name in names]
    state = live_document.Live()
    document = state.read(line(run={"findings": findings}, ended=how == "ended"))
    if how == "lost":
        assert [card.page.partition("/")[0] for card in document.cards] == ["finding"] * 3
        document = state.lost()
    assert [card.trace for card in document.cards] == [0, -1, -1]
    assert [card.why_not for card in document.cards] == ["", *(f"its page: {name}" for name in names[1:])]
    assert [card.page for card in document.cards] == [""] * 3
    assert msgspec.json.encode(document.traces[0]) == msgspec.json.encode(trace)
    assert document.progress.ended
    assert isinstance(document_in(page(document.traces[0])), TraceDocument)


def test_streams_are_counted_and_end_with_the_run():
    async def look():
        state = live_server.Shown()
        app = live_server.application(state, TOKEN, PORT)
        path = f"/{TOKEN}/events"
        streams = [asyncio.create_task(ask(app, path)) for _ in range(live_server.MOST_STREAMS)]
        while state.streams < live_server.MOST_STREAMS:
            await asyncio.sleep(0)
        assert (await ask(app, path))[0] == 503
        for _ in range(5):
            state.put(state.live.read(line()))
        state.put(state.live.read(line(ended=True)))
        answers = await asyncio.gather(*streams)
        assert state.streams == 0
        return [body.split(b"\n\n") for _, _, body in answers]

    for events in apart(look()):
        documents = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
        assert documents[-1]["progress"]["ended"]
        assert len(documents) == 2  # who is slow gets the newest


def test_telling_takes_a_hundredth_of_the_time_at_most(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for took, then in ((0.0, 1.0), (0.005, 1.0), (0.5, 50.0)):
        told = pace.Pace()
        assert told.due
        with told.telling():
            now += took
        now += then - 0.001
        assert not told.due
        now += 0.002
        assert told.due


class Recorder(live.LivePage):
    """A page that nobody serves."""

    last: "Recorder"

    address = "http://127.0.0.1:1/x/"

    def __init__(self, port=0):
        self.told = []
        Recorder.last = self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def show(self, told):
        self.told.append(json.loads(json.dumps(told)))

    def loss(self):
        return ""


@pytest.fixture
def recorder(monkeypatch):
    """What a page is told, instead of one; it is told as often as possible."""
    monkeypatch.setattr(live, "LivePage", Recorder)
    monkeypatch.setattr(pace, "EVERY_S", 0.0)
    monkeypatch.setattr(pace, "SHARE", 1e9)
    return Recorder


def documents(recorder):
    """What the page would have shown."""
    state = live_document.Live()
    return [state.read(json.dumps(told).encode()) for told in recorder.last.told]


def test_a_run_tells_what_it_has_come_to(recorder, tmp_path, capsys):
    run = ["fuzz", "--target", "fault:free-order-reversed", "--keep-going", "--operations", "900", "--seed", "3"]
    assert main([*run, "--serve", "--json", "--out", str(tmp_path / "found")]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == f"live: {recorder.address}"
    assert recorder.address not in out
    printed, told = json.loads(out), recorder.last.told
    assert told[-1]["run"] == printed
    shown = documents(recorder)
    operations = [one["run"]["operations"] for one in told]
    assert operations == sorted(operations)
    assert operations[0] < operations[-1]
    assert not any(one.progress.ended for one in shown[:-1])
    assert [one["share"] for one in told if one["words"] == "running"][-1] == told[-1]["share"] == 1.0
    assert any("shrinking" in one["words"] for one in told)
    first = next(one["run"]["findings"] for one in told if one["run"]["findings"])
    assert first[0]["reproduction"]["page"].endswith("_whole.html")
    assert Path(first[0]["reproduction"]["trace"]).is_file()
    assert [card.trace for card in shown[-1].cards] == list(range(len(printed["findings"])))


def test_what_several_processes_do_is_told_together(recorder, tmp_path, capsys):
    run = ["fuzz", "--target", "impl", "--jobs", "2", "--operations", "1200", "--seed", "3", "--serve", "--json"]
    assert main([*run, "--attention", "full", "--out", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    told = recorder.last.told
    assert told[-1]["run"] == printed
    rows = next(one["jobs"] for one in reversed(told) if one.get("jobs"))
    assert [row[1] for row in rows] == ["3", "4"]
    last = told[-2]["run"]
    assert sum(int(row[3].replace(",", "")) for row in rows) <= printed["operations"]
    assert last["operations"] == printed["operations"]
    assert all(isinstance(one, ReportDocument) for one in documents(recorder))


def test_a_campaign_tells_how_far_its_targets_are(recorder, tmp_path, capsys):
    run = ["campaign", "--target", "fault:free-order-reversed", "--operations", "1500", "--shrink-seconds", "1"]
    assert main([*run, "--attention", "full", "--seed", "3", "--serve", "--out", str(tmp_path)]) == 1
    shown, told = documents(recorder), recorder.last.told
    (found, *_) = [one for one in shown if one.cards]
    assert found.cards[0].why_not == live_document.WAITING[1]
    assert [one["share"] for one in told] == sorted(one["share"] for one in told)
    (place, done) = next((place, one) for place, one in enumerate(shown) if one.cards and one.cards[0].page)
    assert not done.progress.ended
    assert told[-1]["campaign"] == json.loads((tmp_path / "campaign.json").read_text())
    assert shown[-1].cards[0].trace == 0
    assert told[place]["campaign"][0]["findings"] == told[-1]["campaign"][0]["findings"]


def test_schedulers_tell_what_they_have_come_to(recorder, monkeypatch):
    def started(target, task, modules):
        assert task.tells
        so_far = {"stories": 1, "steps": 40, "seconds": 20.0, "reached": {NASTY: 2}}
        found = {"name": NASTY, "judge": "contract", "known": "", "what": NASTY, "story": {}}
        lines = [{"so_far": so_far}, {"found": found}, {"progress": {"steps": 40, "stories": 1}}]
        code = f"for line in {list(map(json.dumps, lines))!r}: print(line)"
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(story_fuzzing, "_started", started)
    outcome = story_fuzzing.fuzz_scheduler("one", StoryTask(steps=80), None, lambda line: None, Recorder())
    assert outcome.exit_code == 1
    assert [(one["words"], one["share"]) for one in recorder.last.told] == [
        ("starting", 0.0),
        ("running", 0.5),
        ("running", 0.5),
        ("the run has ended", 1.0),
    ]
    shown = documents(recorder)
    assert [one.mood for one in shown] == ["note", "note", "bad", "bad"]
    assert "40 scheduler steps" in shown[-1].headline
    assert shown[-1].progress.ended


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_is_lost_costs_the_run_nothing(how, tmp_path, capsys, monkeypatch):
    usual = live.LivePage.__init__

    def init(self, port):
        usual(self, port)
        os.kill(self.process.pid, how)
        if how == signal.SIGKILL:
            self.process.wait()
        for _ in range(50):  # far more than a pipe holds
            self.show(told(run={"target": "x" * 100_000}))

    monkeypatch.setattr(live.LivePage, "__init__", init)
    monkeypatch.setattr(live, "LAST_S", 0.05)
    assert main(["fuzz", "--operations", "500", "--seed", "3", "--serve", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    lost = [line for line in lines if line.startswith("the page is no longer served (exit status -9)")]
    assert len(lost) == (how == signal.SIGKILL)


def test_the_server_ends_with_what_feeds_it():
    """At a real socket: it answers, what is told is shown, and where the feed ends without a last word it says so."""
    feeding, fed = os.pipe()
    with socket.socket() as listening, os.fdopen(feeding, "rb") as told, os.fdopen(fed, "wb", buffering=0) as feed:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        with ThreadPoolExecutor(1) as pool:
            over = pool.submit(asyncio.run, live_server.serve(listening, TOKEN, told))
            stranger = HTTPConnection("127.0.0.1", port, timeout=60)
            stranger.request("GET", f"/{TOKEN}/", headers={"Host": "evil.example"})
            assert stranger.getresponse().status == 403
            stranger.close()
            reader = HTTPConnection("127.0.0.1", port, timeout=60)
            reader.request("GET", f"/{TOKEN}/events")
            events = reader.getresponse()
            assert json.loads(events.readline().removeprefix(b"data: "))["verdict"] == "nothing was told yet"
            feed.write(b"nonsense\n" + line() + b"\n")
            assert events.readline() == b"\n"
            assert json.loads(events.readline().removeprefix(b"data: "))["verdict"] == "nothing was found so far"
            feed.close()
            assert b"without a last word" in events.read()
            reader.close()
            assert over.result(timeout=60) is None


def test_a_file_asks_nobody(tmp_path):
    assert "EventSource" not in page(shown(TWICE))
    assert "connect-src" not in page(shown(TWICE))
    assert "EventSource" in page(live_server.Shown().document, live=True)


def test_the_token_is_in_the_address_alone():
    with live.LivePage() as one, live.LivePage() as two:
        token = one.address.split("/")[3]
        assert len(token) >= 43
        assert token not in two.address
        assert token not in Path(f"/proc/{one.process.pid}/cmdline").read_text()
        assert token not in Path(f"/proc/{one.process.pid}/environ").read_text()


def test_wrong_use_is_told_in_a_line(monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["fuzz", "--operations", "10", "--serve", "--port", port]) == 2
    assert main(["fuzz", "--operations", "10", "--port", "0"]) == 2
    monkeypatch.setattr(live, "find_spec", lambda name: None)
    assert main(["campaign", "--target", "impl", "--operations", "10", "--serve"]) == 2
    taken_line, port_line, missing = capsys.readouterr().err.splitlines()
    assert f"--port: {port} on 127.0.0.1: Address already in use" in taken_line
    assert "--port: only with --serve" in port_line
    assert live.MISSING in missing
