"""Findings that another target shows, too, are counted and do not end the runs."""

import json
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.fuzzing import known_of_target
from blockproof.fuzz.findings.oracle_names import MODEL_FREE, ORACLES

BROKEN = "fault:hit-in-wrong-order"
RUN = ["fuzz", "--oracle", "contract,shadow", "--attention", "full", "--seed", "4", "--operations", "1500", "--json"]


def ran(target: str, known_of: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    code = main([*RUN, "--target", target, "--known-of", known_of, "--out", str(folder), "--keep-going"])
    return code, json.loads(capsys.readouterr().out)


def test_what_the_other_target_shows_too_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = ran(BROKEN, BROKEN, tmp_path, capsys)
    assert (code, document["findings"]) == (0, [])
    assert sum(document["shared"].values()) > 1  # type: ignore[attr-defined]
    assert "--known-of" in str(document["repeat"])


def test_what_it_does_not_show_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = ran(BROKEN, "impl", tmp_path, capsys)
    assert (code, document["shared"]) == (1, {})
    assert document["findings"]


def test_a_patched_release_is_asked_for_by_itself_where_no_model_judges() -> None:
    spec = "vllm==0.20.2+plugin.kv"
    assert known_of_target(None, spec, MODEL_FREE) == "vllm==0.20.2"
    assert known_of_target(None, spec, ORACLES) == ""
    assert known_of_target(None, "vllm==0.20.2", MODEL_FREE) == ""
    assert known_of_target("impl", spec, ORACLES) == "impl"


def test_an_unknown_name_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--known-of", "nonsense", "--operations", "10"]) == 2
    assert "--known-of: unknown target 'nonsense'" in capsys.readouterr().err
