"""Which theorems a change touches: by the hash of the functions under them, and settled again on both sides."""

import json

import pytest
from blockproof.fuzz.releases import verify_proofs
from blockproof.fuzz.releases.verify_proofs import RECORD, Proofs, reprove
from blockproof.proofs.hashes import hash_of

SKIPPED = "blockproof.impl.managers.window:SlidingWindowManager.get_num_skipped_tokens"


def recorded():
    theorems = json.loads(RECORD.read_text(encoding="utf-8"))["theorems"].values()
    return {name: value for sides in theorems for name, value in sides.get("impl", {}).get("functions", {}).items()}


def test_hashes_are_those_of_the_record():
    functions = recorded()
    assert SKIPPED in functions
    found = {name: hash_of(name) for name in functions}
    assert [name for name, value in found.items() if value is None] == []
    # Getter and setter of a property have one name; the record has the one that ran.
    assert [name for name, value in found.items() if functions[name] not in str(value).split()] == []


@pytest.mark.parametrize("name", ["blockproof.nowhere:f", "json:nothing", "json:dumps.<locals>.nothing"])
def test_what_is_not_there_has_no_hash(name):
    assert hash_of(name) is None


def test_two_sides_with_the_same_source_need_no_proof():
    same = reprove("impl", "impl")
    assert isinstance(same, Proofs)
    assert (same.changed, same.statuses, same.broken) == ((), {}, [])
    assert same.compared == len(recorded())
    assert same.text().endswith("under the theorems differs, so all still hold")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("impl", "a:b", "there are no theorems about this engine"),
        ("fault:free-order-reversed", "impl", "there are no theorems about this engine"),
        ("impl", "vllm==0.23.0", "impl and vllm==0.23.0 have no functions in common"),
    ],
)
def test_what_has_no_theorems_says_so(old, new, says):
    assert str(reprove(old, new)).startswith(says)


def test_without_a_record_nothing_is_proved(tmp_path):
    assert str(reprove("impl", "impl", tmp_path / "missing.json")).startswith("not proved: ")


def test_theorems_over_functions_that_differ_are_settled_on_both_sides(monkeypatch, tmp_path):
    pytest.importorskip("z3")
    sides = iter([{SKIPPED: "before"}, {SKIPPED: "after"}])
    monkeypatch.setattr(verify_proofs, "hashes_of", lambda spec, names: dict.fromkeys(names) | next(sides))
    record = {"theorems": {"T1": {"impl": {"functions": {SKIPPED: ""}}}, "T9": {"impl": {"functions": {"a:b": ""}}}}}
    (tmp_path / "functions.json").write_text(json.dumps(record))
    found = reprove("impl", "impl", tmp_path / "functions.json")
    assert isinstance(found, Proofs)
    assert found.changed == (SKIPPED,)
    assert found.statuses == {"T1": ("proved", "proved")}
    assert found.text() == (
        "1 of 2 functions under the theorems differ; 1 theorem over them on the new side: 1 proved; settled on both "
        "sides: 1, with the same result"
    )


def test_a_theorem_that_is_no_longer_true_is_told():
    found = Proofs(9, ("a:b",), {"T1": ("proved", "refuted"), "T2": ("refuted", "proved"), "T3": ("proved", "proved")})
    assert found.broken == ["T1"]
    assert "T1 (proved -> refuted), T2 (refuted -> proved)" in found.text()
    assert found.as_json()["theorems"]["T1"] == {"old": "proved", "new": "refuted"}
