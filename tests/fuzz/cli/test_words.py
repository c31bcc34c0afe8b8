"""What commands say: one instead of many, what was meant, what holds."""

import json
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.findings.words import did_you_mean, plural


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fuzz", "--target", "vlm==0.33.0"], "unknown target 'vlm==0.33.0'; did you mean 'vllm'?"),
        (["fuzz", "--target", "fault:free-order-revrsed"], "did you mean 'free-order-reversed'?"),
        (["fuzz", "--target", "fault:nope"], "unknown fault 'nope'; see blockproof mutants --list"),
        (["fuzz", "--attention", "slding"], "--attention: 'slding' is unknown; did you mean 'sliding'?"),
        (["fuzz", "--oracle", "contrct"], "--oracle: 'contrct' is unknown; did you mean 'contract'?"),
        (["fuzz", "--oracle", "no-S1"], "--oracle: no-S1 alone judges nothing; add one of"),
        (["mutants", "--only", "free-order"], "no fault is called 'free-order'; did you mean 'free-order-reversed'?"),
        (["prove", "T99.xyz"], "no theorem is called 'T99.xyz'; "),
        (["explore", "slidng"], "no scope is called 'slidng'; did you mean 'sliding'?"),
        (["explore", "--fault", "block-leak"], "no fault is called 'block-leak'; did you mean 'block-leaks'?"),
        (["plan", "gemma-3-27b", "--memory", "4GiB", "--dtype", "bflat16"], "did you mean 'bfloat16'"),
    ],
)
def test_a_name_that_is_misspelt_gets_the_one_that_was_meant(arguments, says, capsys):
    if arguments[0] == "prove":
        pytest.importorskip("z3")
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_a_name_that_resembles_nothing_gets_the_list():
    assert did_you_mean("qqq", ["full", "mamba"]) == "choose from full, mamba"
    assert did_you_mean("qqq", ["full", "mamba"], "see the list") == "see the list"
    assert sorted(did_you_mean("ab", ["abx", "aby"]).split("'")[1::2]) == ["abx", "aby"]


def test_one_thing_is_not_called_many(capsys):
    assert plural(1, "reply", "replies") == "1 reply"
    assert plural(0, "run") == "0 runs"
    main(["fuzz", "--operations", "1", "--attention", "full", "--seed", "1", "--allow-vacuous"])
    assert ": 1 run, " in capsys.readouterr().out


def test_a_theorem_that_was_asked_for_is_written_out(capsys):
    pytest.importorskip("z3")
    assert main(["prove", "T4", "--target", "model", "--no-cross-check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "T4: A sliding-window request never holds more blocks than the admission gate counts."
    assert lines[1] == "  assume"
    assert "      _held(f, v, f.skipped_sliding(v.c, v.w)) <= f.cap_sliding(v.w, v.b, v.batched, v.max_len)" in lines
    assert any(line.split()[:2] == ["model", "proved"] for line in lines)


def test_a_record_that_says_otherwise_than_what_was_settled_fails(tmp_path, capsys):
    pytest.importorskip("z3")
    asked = ["prove", "T4", "--target", "model", "--no-cross-check", "--check"]
    record = Path(__file__).parents[3] / "docs/reference/theorems"
    assert main([*asked, str(record)]) == 0
    document = json.loads((record / "functions.json").read_text())
    document["theorems"]["T4"]["model"]["paths"] += 1
    (tmp_path / "functions.json").write_text(json.dumps(document))
    assert main([*asked, str(tmp_path)]) == 1
    assert "T4 on model: proved, " in capsys.readouterr().out.splitlines()[-1]
    assert main([*asked, str(tmp_path / "nowhere")]) == 2
