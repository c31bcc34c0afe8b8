"""SGLang's scheduler in batches, in the interpreter of a release: skipped where no release is installed."""

import json
import subprocess

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.sglang.batch_faults import FAULTS
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.opening.environments import installed

FAMILY = families()["sglang"]


@pytest.fixture(scope="module")
def place():
    """The newest release that is installed."""
    environments = installed(FAMILY)
    if not environments:
        pytest.skip("no release of SGLang is installed")
    return environments[-1].place


@pytest.fixture
def lines(place, tmp_path):
    """What a run of mixes printed for these arguments."""

    def printed(*arguments):
        done = subprocess.run(
            [str(place.python), "-W", "ignore", "-m", "blockproof.fuzz.compat.batched", "sglang", *map(str, arguments)],
            env={**environment_of(place, tmp_path), **FAMILY.environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    return printed


def test_mixes_of_all_kinds_run_clean_in_batches_of_several_requests(lines):
    *found, sums = lines(1, 0, 10)
    assert found == []
    assert {"operations of full", "operations of full+sliding", "operations of full+mamba"} <= sums["sums"].keys()
    assert sums["sums"]["batches of 2"] > 0
    assert sums["sums"]["hit tokens"] > 0
    assert sums["sums"]["states read back"] > 0


def test_every_planted_mistake_is_noticed(lines):
    noticed = {line["fault"]: line["found"] for line in lines(1, 0, 40, "faults")}
    assert noticed.keys() == FAULTS.keys()
    assert all(noticed.values()), noticed
    assert noticed["never-admitted"][0].startswith("starves")
    assert noticed["state-of-another"][0].startswith("state")
    assert noticed["state-too-early"][0].startswith(("slots of states", "state"))
