"""`blockproof explore`: its exit codes, what it prints, and what it leaves behind."""

import json
import os
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest
from blockproof.fuzz.cli import explore as cli_explore
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.engines.walked_scopes import EVERY_SCOPE
from blockproof.fuzz.exploration import checkpoint, session
from blockproof.fuzz.exploration.checkpoint import load
from blockproof.fuzz.exploration.faults import FAULTS
from blockproof.fuzz.exploration.scopes import SCOPES
from blockproof.fuzz.exploration.search import EXHAUSTED, Exploration, Search

MEASURED = ["--attention", "full", "--blocks", "4", "--block-size", "1"]


def run(capsys, *arguments):
    code = cli.main(["explore", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_an_exhausted_scope_exits_with_0_and_says_how_many_states_it_has(capsys):
    code, out, _ = run(capsys, *MEASURED)
    assert code == 0, out
    assert out.startswith("full: ")
    assert "states" in out
    assert "NOT EXHAUSTED" not in out
    assert out.splitlines()[-1].startswith("all properties hold in every reachable state of 1 scope: ")


def test_a_limit_exits_with_1_and_says_that_the_scope_was_not_exhausted(capsys):
    code, out, _ = run(capsys, *MEASURED, "--max-states", "200")
    assert code == 1
    assert "NOT EXHAUSTED (state limit)" in out
    code, out, _ = run(capsys, *MEASURED, "--max-states", "200", "--json")
    (scope,) = json.loads(out)["scopes"]
    assert (code, scope["passed"], scope["ended"]) == (1, False, "state limit")


def test_a_finding_exits_with_1_and_leaves_a_trace_that_replay_runs(capsys, tmp_path):
    code, out, _ = run(capsys, "--fault", "taken-from-the-back", "--out", str(tmp_path))
    assert code == 1
    assert "BROKEN: S9, lockstep" in out
    (trace,) = tmp_path.glob("*.json")
    assert f"blockproof replay {trace}" in out
    assert cli.main(["replay", str(trace)]) == 0  # on our core as it is, there is no fault


def test_a_finding_as_json_names_the_properties_and_the_operations(capsys, tmp_path):
    code, out, _ = run(capsys, "--fault", "block-leaks", "--out", str(tmp_path), "--json")
    (scope,) = json.loads(out)["scopes"]
    assert code == 1
    assert scope["finding"]["properties"] == ["S1", "lockstep"]
    assert [operation["op"] for operation in scope["finding"]["operations"]] == [
        "Submit",
        "Lookup",
        "Allocate",
        "Preempt",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nix"], "no scope is called 'nix'"),
        (["--fault", "nix"], "no fault is called 'nix'"),
        (["--attention", "nix"], "'nix' is unknown"),
        (["--attention", "full+full"], "name each once"),
        (["--attention", "full", "--blocks", "3"], "give at least 4"),
    ],
)
def test_wrong_usage_exits_with_2_and_one_line(capsys, arguments, problem):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert problem in err
    assert err.count("\n") == 1


def test_list_names_every_scope_and_every_fault(capsys):
    code, out, _ = run(capsys, "--list")
    assert code == 0
    assert all(f"{name}: " in out for name in EVERY_SCOPE)
    assert all(f"{name} (" in out for name in FAULTS)
    code, out, _ = run(capsys, "--list", "--json")
    assert set(json.loads(out)["scopes"]) == set(EVERY_SCOPE)


def test_what_was_saved_is_gone_on_with_and_deleted_at_the_end(capsys, tmp_path):
    code, out, _ = run(capsys, *MEASURED, "--json")
    (whole,) = json.loads(out)["scopes"]
    assert run(capsys, *MEASURED, "--save", str(tmp_path), "--max-states", "300")[0] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["full.states"]
    code, out, _ = run(capsys, *MEASURED, "--save", str(tmp_path), "--json")
    (rest,) = json.loads(out)["scopes"]
    assert code == 0
    for count in ("states", "resting", "transitions", "depth", "reached"):
        assert rest[count] == whole[count]
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_exits_with_2_and_one_line(capsys, tmp_path):
    (tmp_path / "full.states").write_bytes(b"nothing of the kind")
    code, _, err = run(capsys, *MEASURED, "--save", str(tmp_path))
    assert code == 2
    assert "full.states: is no checkpoint" in err
    assert err.count("\n") == 1


def test_a_run_that_ended_before_its_last_scope_is_no_success():
    chosen = session.named(["full", "mamba"], None)
    passed = Exploration("full", 9, 3, 9, 3, 0.1, 0.1, EXHAUSTED)
    assert session.success([passed, passed], chosen)
    assert not session.success([passed], chosen)
    assert not session.success([passed, replace(passed, ended="state limit")], chosen)


def test_levels_are_saved_as_the_search_goes_on(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "SAVE_EVERY_S", 0.0)
    saved = []
    monkeypatch.setattr(
        "blockproof.fuzz.exploration.checkpoint.save", lambda search, path, write: saved.append(search.depth)
    )
    assert run(capsys, *MEASURED, "--save", str(tmp_path))[0] == 0
    assert len(saved) > 5
    assert saved == sorted(saved)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_saves_and_ends(capsys, tmp_path, monkeypatch, jobs):
    @contextmanager
    def pressed(name):
        yield lambda search: os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(cli_explore, "_progress", pressed)
    code, out, err = run(capsys, "full", "mamba", "--save", str(tmp_path), "--jobs", jobs)
    assert code == 130
    assert "full: " in out
    assert "NOT EXHAUSTED (interrupted)" in out
    assert "mamba: " not in out
    assert "0 of 2 scopes exhausted" in out
    assert err == "interrupted: what was not visited may be wrong\n"
    assert [path.name for path in tmp_path.iterdir()] == ["full.states"]
    search = Search(SCOPES["full"])
    load(search, tmp_path / "full.states")
    assert 0 < search.at < len(search.states)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("at", "x", "invalid literal"),
        ("at", 10**9, "the counts do not fit the states"),
        ("reached", 3, "'int' object is not iterable"),
        ("parents", b"\xff", "met before the one that it was met from"),
        ("lengths", b"\x00", "holds no states of this scope"),
    ],
)
def test_a_forged_checkpoint_ends_in_one_line(tmp_path, capsys, field, value, says):
    words = [*MEASURED, "--max-states", "60", "--save", str(tmp_path)]
    run(capsys, *words)
    path = tmp_path / "full.states"
    head, _, payload = path.read_bytes().partition(b"\n")
    header = json.loads(head)
    if isinstance(value, bytes):
        place = checkpoint._PARTS.index(field)
        begin = sum(header["sizes"][:place])
        end = begin + header["sizes"][place]
        payload = payload[:begin] + value * (end - begin) + payload[end:]
    else:
        header[field] = value
    header["digest"] = checkpoint._digest(header, [payload])
    path.write_bytes(json.dumps(header).encode() + b"\n" + payload)
    code, _, err = run(capsys, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert says in err
