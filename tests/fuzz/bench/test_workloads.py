"""The workloads on our core in this process: what is done, what counts as an operation, and what is refused."""

import json
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.driver import VllmStyleDriver
from blockproof.fuzz.bench.entries import ROWS, traffic_entries
from blockproof.fuzz.bench.kinds import KINDS, workload
from blockproof.fuzz.bench.memory import memory_of
from blockproof.fuzz.bench.traffic import TrafficRow, ideal_hits, read_trace
from blockproof.fuzz.bench.workload import WrongWorkError, fill, shape_of
from blockproof.fuzz.opening.targets import open_here
from blockproof.fuzz.targets.driver import driver_of

from .paced import Paced, never_hits, refuses, untimed
from .sizes import TIMED, TINY

TRACES = Path(__file__).parents[4] / "shared" / "traces"


def ready(kind, params, driver=None):
    made = workload(kind, driver or VllmStyleDriver(bind_impl()), params)
    made.prepare()
    return made


@pytest.mark.parametrize("has_batches", [True, False])
def test_a_batch_says_who_is_refused_first(has_batches, monkeypatch):
    driver = VllmStyleDriver(bind_impl())
    built = driver.build(shape_of({}, 6))
    if has_batches:
        monkeypatch.delattr(VllmStyleDriver, "decode")  # one call has to do
    else:
        monkeypatch.delattr(type(built), "allocate_slots_batch")
    requests = [driver.request(str(i), list(range(100 * i, 100 * i + 32))) for i in range(2)]
    for request in requests:
        fill(driver, request, 32)
    assert driver.decode_batch([]) is None
    driver.append(requests, 7)
    assert driver.decode_batch(requests) is requests[1]  # there was one block left
    assert driver.decode_batch(requests[:1]) is None


def test_every_kind_is_timed():
    assert {entry.kind for entry in TIMED} | {"traffic"} == set(KINDS)


@pytest.mark.few_are_quick
@pytest.mark.parametrize("entry", TIMED, ids=lambda entry: entry.name)
def test_each_workload_does_the_same_again(entry):
    if entry.name == "request-sha256_cbor":
        pytest.importorskip("cbor2")
    core = "impl-today" if entry.name.startswith("today-") else "impl"
    made = ready(entry.kind, entry.params, VllmStyleDriver(bind_impl(core)))
    pieces = [made.piece() for _ in range(2 if entry.kind == "construction" else 12)]
    assert all(piece.ns >= 0 and piece.operations > 0 for piece in pieces)
    assert {piece.operations for piece in pieces} == {pieces[0].operations}
    if entry.kind == "prompts":
        assert {str(piece.facts) for piece in pieces} == {str(pieces[0].facts)}
        hits = entry.params.get("shared", 0) // 16 * 16 * entry.params["requests"]
        assert pieces[0].facts["hit"] == hits


@pytest.mark.parametrize(("name", "hit"), [("today-inside", 2 * 96), ("today-junctions", 2 * 128)])
def test_what_only_cores_of_today_hit_is_hit(name, hit):
    entry = TINY[name]
    assert ready(entry.kind, entry.params, VllmStyleDriver(bind_impl("impl-today"))).piece().facts["hit"] == hit


@pytest.mark.parametrize("name", ["today-checkpoints", "today-junctions", "today-watermark", "today-reports"])
def test_what_a_core_does_not_have_is_left_out(name):
    entry = TINY[name]
    with pytest.raises(NotImplementedError, match=r"it has no|it tells nobody"):
        ready(entry.kind, entry.params).piece()


def test_what_is_timed_is_what_is_asked_for():
    """By a clock that counts calls: two requests of 128 tokens, in chunks of 32."""

    def ns(timed, chunk=0):
        params = {"tokens": 128, "requests": 2, "pool": 300, "timed": timed, "chunk": chunk}
        return ready("prompts", params, Paced(bind_impl(), 100)).piece().ns

    assert ns(["lookup"]) == ns(["free"]) == 2_000
    assert ns(["allocate"]) == 2_000
    assert ns(["allocate"], chunk=32) == 8_000
    assert ns(["lookup", "allocate", "free"], chunk=32) == 12_000


def test_a_decode_step_is_counted_for_each_request():
    entry = TINY["decode-64"]
    piece = ready(entry.kind, entry.params, Paced(bind_impl(), 100)).piece()
    assert (piece.ns, piece.operations) == (48_000, 48)


@pytest.mark.parametrize("full", [True, False])
def test_only_a_full_pool_evicts(full):
    class Watched(VllmStyleDriver):
        evicted = 0

        def take_events(self):
            events = super().take_events()
            self.evicted += self.removed(events)
            return events

    driver = Watched(bind_impl())
    params = {"tokens": 128, "requests": 2, "pool": 300, "timed": ["take_events"], "full": full}
    made = ready("prompts", params, driver)
    driver.take_events()
    driver.evicted = 0
    made.piece()
    assert (driver.evicted > 0) == full


@pytest.mark.parametrize("name", ["prefill-8k", "decode-64", "short-64"])
def test_a_core_that_refuses_is_not_timed(name):
    with pytest.raises(WrongWorkError, match="refused"):
        ready(TINY[name].kind, TINY[name].params, driver_of(refuses())).piece()


def test_a_core_that_loses_hits_says_so_in_its_facts():
    entry = TINY["hit-8k"]
    ours, wrong = (ready(entry.kind, entry.params, driver) for driver in (None, driver_of(never_hits())))
    assert ours.piece().facts["hit"] == 192
    assert wrong.piece().facts["hit"] == 0


def test_a_planted_fault_can_be_timed_and_a_target_without_a_driver_cannot():
    assert ready("decode", TINY["decode-64"].params, driver_of(open_here("fault:free-order-reversed"))).piece().ns > 0
    with pytest.raises(NotImplementedError, match="no method driver"):
        driver_of(untimed())


def test_memory_grows_with_use():
    facts = memory_of(VllmStyleDriver(bind_impl()), {"pool": 4000})
    assert facts["blocks"] == 4000
    assert facts["used"] >= facts["built"] >= 0
    assert facts["used"] > 0


# Traffic.


def row(prompt, output, *ids):
    return {"input_length": prompt, "output_length": output, "hash_ids": list(ids)}


def traffic(rows, **sizes):
    params = {"pool": 1000, "running": 4, "budget": 2048, "end": 2, **sizes}
    params["rows"] = [[raw["input_length"], raw["output_length"], raw["hash_ids"]] for raw in rows]
    return ready("traffic", params)


CHAT = [row(700, 3, 0, 1), row(900, 20, 0, 2), row(1100, 1, 0, 2, 3), row(513, 5, 7, 8), row(700, 2, 0, 1)]


def test_every_request_of_a_trace_ends_and_hits_what_can_be_hit():
    made = traffic(CHAT, running=1)
    pieces = [made.piece() for _ in range(3)]
    assert [piece.operations for piece in pieces] == [2, 2, 1]
    assert sum(piece.notes["prompt"] for piece in pieces) == 700 + 900 + 1100 + 513 + 700
    facts = made.summary()
    rows = [TrafficRow(raw["input_length"], raw["output_length"], tuple(raw["hash_ids"])) for raw in CHAT]
    assert facts["hit"] == facts["ideal"] == ideal_hits(rows) == 512 + 512 + 384 + 688
    assert facts["evicted"] == facts["preempted"] == 0


def test_a_trace_begins_again_behind_its_end():
    made = traffic(CHAT[:2], running=1)
    assert made.piece().notes == made.piece().notes


def test_a_small_pool_evicts_and_preempts():
    rows = [row(160, 200, number) for number in range(12)]
    facts = traffic(rows, pool=60, running=8).summary()
    assert facts["evicted"] > 0
    assert facts["preempted"] > 0


def test_a_request_that_can_never_fit_is_said_to():
    with pytest.raises(WrongWorkError, match="does not fit into the empty pool"):
        traffic([row(1600, 1, *range(4))], pool=20).piece()


@pytest.mark.parametrize(
    "line",
    ["nonsense", "[]", json.dumps({"input_length": 5}), json.dumps(row(1000, 1, 4)), json.dumps(row(0, 1))],
)
def test_what_is_no_trace_is_refused_with_its_line(line, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{json.dumps(row(10, 1, 0))}\n{line}\n")
    with pytest.raises(ValueError, match=r"trace\.jsonl, line 2: no row"):
        read_trace(path, 5)
    assert len(read_trace(path, 1)) == 1


def test_an_empty_trace_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ValueError, match="has no rows"):
        read_trace(tmp_path / "empty.jsonl", 1)


@pytest.mark.skipif(not TRACES.exists(), reason="no recorded traces here")
def test_the_recorded_traces_can_be_read():
    entries = traffic_entries(sorted(TRACES.glob("*.jsonl")))
    assert [len(entry.params["rows"]) for entry in entries] == [ROWS, ROWS]
    conversation = read_trace(TRACES / "mooncake_conversation_trace.jsonl", 100_000)
    assert ideal_hits(conversation) / sum(raw.prompt for raw in conversation) == pytest.approx(0.366, abs=0.02)
