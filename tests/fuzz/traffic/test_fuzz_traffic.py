"""A log through the command: what is counted, what is found, and how the command ends."""

import json
import random
import re
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.lockstep import LockstepRun
from blockproof.fuzz.traffic.driver import Service, TrafficSetting
from blockproof.fuzz.traffic.fuzzing import ideal
from blockproof.fuzz.traffic.logs import Log, Logged, read_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Forty requests in five conversations, each a block of 512 longer than the one before."""
    draw, lines = random.Random(1), []
    conversations = [[100 * number] for number in range(5)]
    for number in range(40):
        content = draw.choice(conversations)
        content.append(1_000 + number)
        row = {"timestamp": 10 * number, "input_length": 512 * len(content) - 100, "output_length": 300}
        lines.append(json.dumps({**row, "hash_ids": content}))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines))
    return path


def run(*arguments: str | Path) -> int:
    return main(["fuzz-traffic", *map(str, arguments)])


def report(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, dict[str, float]]:
    assert run(*arguments, "--json") == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("attention", ["full", "full+sliding", "full+mamba"])
def test_a_log_is_served_by_our_core_under_all_oracles(
    log: Path, capsys: pytest.CaptureFixture[str], attention: str
) -> None:
    done = report(capsys, log, "--divide", "32", "--oracle", "all", "--attention", attention)
    served = done["served"]
    assert served["arrived"] == served["admitted"] == 40
    assert served["turned_away"] == 0
    assert 0 < served["hit_ratio"] <= done["ideal"]["ratio"]
    assert done["reached"]["registered block evicted"] > 0


def test_a_small_pool_preempts(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, log, "--divide", "32", "--block-size", "4", "--blocks", "60")["served"]["preemptions"] > 0


def test_in_a_pool_that_holds_all_the_hits_are_nearly_those_of_a_cache_without_end(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = report(capsys, log, "--divide", "32", "--blocks", "2000", "--running", "1")
    assert done["served"]["hit"] == done["ideal"]["hit"]


def test_outcomes_alone_are_compared_between_two_looks(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = report(capsys, log, "--divide", "32", "--oracle", "lockstep")
    sparse = report(capsys, log, "--divide", "32", "--oracle", "lockstep", "--look-every", "100")
    assert whole["served"] == sparse["served"]


@pytest.mark.parametrize("look_every", ["1", "200"])
def test_a_fault_is_found_and_cut_to_few_requests(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], look_every: str
) -> None:
    out = tmp_path / "found"
    options = ("--oracle", "lockstep", "--look-every", look_every, "--out", out, "--shrink-seconds", "20")
    assert run(log, "--divide", "16", "--target", "fault:free-order-reversed", *options) == 1
    shown = capsys.readouterr().out
    assert re.search(r"the last \d+ requests? of these alone show it, with lengths divided by \d+\n", shown)
    assert max(map(len, shown.splitlines())) < 1_000
    (trace,) = [path for path in out.glob("*.json") if not path.name.endswith("_whole.json")]
    assert main(["replay", str(trace), "--target", "fault:free-order-reversed"]) == 1


def test_what_liveness_finds_is_a_script(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "--oracle",
        "liveness",
        "--divide",
        "32",
        "--blocks",
        "13",
        "--out",
        tmp_path / "found",
        "--shrink-seconds",
        "10",
    )
    assert run(log, "--target", "fault:preempted-keeps-blocks", *options) == 1
    assert "FOUND: L4 (liveness)" in capsys.readouterr().out


def test_a_look_at_the_end_sees_what_no_outcome_shows() -> None:
    target = open_target("fault:free-order-reversed")
    run = LockstepRun(target, Judging(("lockstep",), full_look_every=10_000, looks_between=False))
    log = Log(16, (Logged(0.0, 40, 2, (1, 2, 3)),))
    objection = Service(run, TrafficSetting(), log).serve()
    assert objection is not None
    assert objection.finding.observable == "free"


def test_a_target_in_a_child_is_asked_for_outcomes_alone(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--divide", "32", "--oracle", "lockstep", "--look-every", "100")
    here = report(capsys, log, *options)["served"]
    there = report(capsys, log, *options, "--isolate")["served"]
    assert there["operations"] == here["operations"] + 1  # looked at after a last operation
    assert there["hit"] == here["hit"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("missing.jsonl",), 2, "No such file"),
        (("--attention", "all"), 2, "one of the types"),
        (("--divide", "3"), 2, "does not divide"),
        (("--first", "40"), 2, "there is no request 40"),
        (("--target", "vllm==0.0.1"), 3, "not installed"),
        (("--blocks", "1", "--allow-vacuous"), 0, "40 of them turned away"),
    ],
)
def test_wrong_use_is_one_line(
    log: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    given = arguments if "missing.jsonl" in arguments else (str(log), *arguments)
    assert run(*given) == code
    printed = capsys.readouterr()
    assert words in printed.out + printed.err


TRACES = Path(__file__).parents[4] / "shared" / "traces"


@pytest.mark.skipif(not TRACES.is_dir(), reason="recorded traffic is not there")
def test_the_published_hit_ratios_of_recorded_traffic() -> None:
    ratios = {}
    for name in ("conversation", "synthetic"):
        ratios[name] = ideal(read_log(TRACES / f"mooncake_{name}_trace.jsonl"), 512).ratio_of_entries
    assert {name: round(ratio, 3) for name, ratio in ratios.items()} == {"conversation": 0.366, "synthetic": 0.64}
