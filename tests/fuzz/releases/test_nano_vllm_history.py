"""A real history: nano-vllm read wrong content in f64d821, and 9fa256a fixed it."""

import importlib.util
import json
from pathlib import Path

import pytest
from blockproof.fuzz.cli import main as cli

from .toy_git import git

BUNDLE = Path(__file__).resolve().parents[4] / "shared" / "engines" / "nano-vllm.bundle"
TRACE = Path(__file__).with_name("nano-vllm-wrong-content.json")
TARGET = "blockproof.fuzz.adapters.nano_vllm:make_target"
WITH_FAULT, FIX = "f64d821", "9fa256a56d81101918aa4f763b66854196bab215"

pytestmark = [
    pytest.mark.skipif(not BUNDLE.exists(), reason="the repository of nano-vllm is not here"),
    pytest.mark.skipif(importlib.util.find_spec("xxhash") is None, reason="nano-vllm needs xxhash"),
]


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nano-vllm")
    git(folder, "clone", "--quiet", str(BUNDLE), "engine")
    return folder / "engine"


@pytest.mark.parametrize("span", [f"{WITH_FAULT}..bb823b3", f"bb823b3..{WITH_FAULT}"])
def test_bisect_names_the_commit_that_fixed_the_wrong_content(repo, span, capsys, monkeypatch):
    monkeypatch.chdir(repo)
    assert cli.main(["bisect", str(TRACE), "--git", span, "--target", TARGET, "--json"]) == 0, capsys.readouterr().err
    document = json.loads(capsys.readouterr().out)
    assert document["begins"] is False
    assert [commit["hash"] for commit in document["suspects"]] == [FIX]
    assert document["exact"] is True


def test_a_commit_on_which_the_trace_cannot_be_applied_is_no_good_one(repo, capsys):
    words = ["bisect", str(TRACE), "--git", f"ec3c60d..{WITH_FAULT}", "--repo", str(repo), "--target", TARGET]
    assert cli.main(words) == 3
    assert "of 10 operations were applied: operation" in capsys.readouterr().err


@pytest.mark.slow
def test_verify_tells_what_the_fix_has_fixed(repo, tmp_path, capsys):
    limits = ["--operations", "600", "--seed", "1", "--attention", "full", "--out", str(tmp_path), "--json"]
    words = ["verify", "--git", f"{WITH_FAULT}..{FIX}", "--repo", str(repo), "--target", TARGET]
    assert cli.main([*words, *limits]) == 1, capsys.readouterr().err
    document = json.loads(capsys.readouterr().out)
    assert ("longer hit", "Lookup") in {(one["what"], one["operation"]) for one in document["changed"]}
    where = {(one["what"], one["where"]) for one in document["findings"]}
    assert not [what for what, side in where if side == "introduced"]
    assert ("S10", "fixed") in where  # a cached block that is hit loses its entry, and so the next hit
