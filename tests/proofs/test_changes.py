"""Which theorems are settled again after a change: those that run a function that is not as the record has it."""

import json

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.releases import verify_proofs
from blockproof.proofs.campaign import Interpreter
from blockproof.proofs.changes import stale
from blockproof.proofs.hashes import hash_of
from blockproof.proofs.theorems import BY_ID

WINDOW = "blockproof.impl.managers.window:SlidingWindowManager.get_num_skipped_tokens"
STATES = "blockproof.impl.managers.mamba:MambaManager.get_num_skipped_tokens"


@pytest.fixture
def record(tmp_path):
    """A record in which every theorem on our core runs one of two functions, T1.full none; all are as they are now."""
    path = tmp_path / "functions.json"
    hashes = {name: hash_of(name) for name in (WINDOW, STATES)}
    assert all(hashes.values())
    settled = {name: {"impl": {"status": "proved", "functions": {STATES: hashes[STATES]}}} for name in BY_ID}
    settled["T1"] = {"impl": {"status": "proved", "functions": hashes}}
    settled["T1.full"] = {"impl": {"status": "proved"}}
    path.write_text(json.dumps({"theorems": settled}))
    return path


def test_nothing_is_stale_if_nothing_has_changed(record):
    assert stale(record, Interpreter("impl")) == set()


@pytest.mark.parametrize("now", ["another hash", None])
def test_what_runs_a_changed_or_new_function_is_stale(record, now):
    record.write_text(record.read_text().replace(str(hash_of(WINDOW)), str(now)))
    assert stale(record, Interpreter("impl")) == {"T1"}


def test_a_function_that_is_gone_and_a_theorem_that_was_never_settled_are_stale(record):
    document = json.loads(record.read_text())
    document["theorems"]["T1"]["impl"]["functions"]["blockproof.impl.managers.window:Gone.f"] = "a hash"
    del document["theorems"]["T2"]
    record.write_text(json.dumps(document))
    assert stale(record, Interpreter("impl")) == {"T1", "T2"}
    assert stale(record, Interpreter("model")) == set(BY_ID), "nothing is recorded of the model"


def test_prove_changed_settles_what_is_stale_and_nothing_else(record, monkeypatch, capsys):
    monkeypatch.setattr(verify_proofs, "RECORD", record)
    assert main(["prove", "--changed", "--target", "impl", "--no-cross-check"]) == 0
    assert capsys.readouterr().out == "no function under the theorems has changed since the record\n"
    record.write_text(record.read_text().replace(str(hash_of(WINDOW)), "another hash"))
    assert main(["prove", "--changed", "--target", "impl", "--no-cross-check", "--json"]) == 0
    assert [result["theorem"] for result in json.loads(capsys.readouterr().out)["results"]] == ["T1"]
