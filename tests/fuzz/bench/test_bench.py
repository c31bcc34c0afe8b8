"""Cores side by side in processes of their own, and the command: ratios, what is kept, what is refused."""

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from blockproof.fuzz.bench import entries, figures, plots, scaling
from blockproof.fuzz.bench.entries import BenchEntry
from blockproof.fuzz.bench.measure import Bench, BenchResult, Measured, mean_ratio, opened
from blockproof.fuzz.bench.report import markdown, summary_lines
from blockproof.fuzz.bench.side import BenchError, BenchSide
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening import environments
from blockproof.fuzz.page.files import TraceSettings, document_of
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.traces.files import TraceError

from .sizes import DIFFERENT, TINY

HERE = Path(__file__).parent / "paced.py"
PACED, REFERENCE, NO_HITS = (f"{HERE}:{name}" for name in ("paced", "reference", "never_hits"))
FEW = ("decode-64", "hit-8k", "free-8k")


@pytest.fixture(autouse=True)
def _few_and_tiny(monkeypatch):
    monkeypatch.setattr(entries, "default_entries", lambda: tuple(TINY[name] for name in FEW))


def bench(*options):
    return main(["bench", *map(str, options)])


def result(name, *ratios, kind="decode", lacks=""):
    least = min(ratios, default=0.0)
    return BenchResult(
        BenchEntry(name, name, kind, {}), "mine", "theirs", 100.0, 250.0, tuple(sorted(ratios)), lacks, least
    )


# Measuring.


def test_the_ratio_is_what_the_other_takes_for_what_the_target_takes(monkeypatch):
    monkeypatch.setenv("PACED", "50")
    with opened(PACED, [REFERENCE]) as ready:
        (found,) = ready.measure(TINY["decode-64"], rounds=4).results
    assert found.ratios == (2.0,) * 4
    assert (found.target_ns, found.against_ns, found.quartiles) == (500.0, 1000.0, (2.0, 2.0))


def test_a_core_with_wrong_hits_is_refused(capsys):
    assert bench("--target", "impl", "--against", NO_HITS, "--only", "hit-8k") == 3
    assert "did different work, so their times cannot be compared: hit 192 and 0" in capsys.readouterr().err


def test_a_core_that_refuses_is_refused(capsys):
    assert bench("--target", "impl", "--against", f"{HERE}:refuses", "--only", "decode-64") == 3
    assert "a prefill was refused" in capsys.readouterr().err


def test_a_core_with_other_hashes_is_refused():
    with (
        opened(REFERENCE, [f"{HERE}:hashes_otherwise"]) as ready,
        pytest.raises(BenchError, match="has other hashes than"),
    ):
        ready.measure(TINY["request-sha256"], rounds=3)


def test_what_a_core_lacks_is_left_out_by_name():
    absent = BenchEntry("request-none", "no such hash", "creation", {"tokens": 32, "requests": 1, "hash": "none"})
    with opened(PACED, [REFERENCE]) as ready:
        measured = [ready.measure(absent), ready.measure(TINY["free-8k"], rounds=3)]
    assert not measured[0].results[0].ratios
    page = markdown(PACED, [REFERENCE], measured)
    assert "`request-none`:" in page
    assert "no hash function none there" in page


@pytest.mark.parametrize("spec", [f"{HERE}:untimed", "program:cat", "vllm==0.1.2"])
def test_what_cannot_be_timed_is_said_in_a_line(spec, capsys):
    assert bench("--against", spec) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("blockproof: ")]
    assert line


def test_memory_is_asked_of_a_process_that_did_nothing_else():
    entry = BenchEntry("bytes", "bytes", "memory", {"pool": 3000, "which": "used"})
    with opened("impl", ["impl"]) as ready:
        (found,) = ready.measure(entry).results
    assert 0.5 < found.ratio < 2
    assert found.target_ns >= 1


def test_a_process_ends_with_its_side():
    side = BenchSide("impl")
    side.close()
    with pytest.raises(TargetUnavailableError, match="has no function 'nothing_here'"):
        BenchSide(f"{HERE}:nothing_here")


def test_ctrl_c_ends_it_at_once():
    command = "import sys; from blockproof.fuzz.cli.main import main; sys.exit(main())"
    new = [sys.executable, "-X", "utf8"]  # not forked, as its first child is to be one of its sides
    words = [*new, "-c", command, "bench", "--against", "impl", "--rounds", "1000", "--only", "pool-512k"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not children_of(process.pid):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said


def children_of(pid):
    """Ids of the processes that this one has started."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


RELEASES = [name for name in ("vllm==0.23.0", "vllm==0.33.0", "sglang==0.5.23") if environments.find(name)]


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES or [None])
def test_releases_do_the_same_work(release):
    if release is None:
        pytest.skip("no release is installed")
    with opened("impl-today" if release == "vllm==0.33.0" else "impl", [release]) as ready:
        measured = [ready.measure(entry, rounds=1) for entry in DIFFERENT if entry.kind != "memory"]
    told = {one.results[0].entry.name for one in measured if one.results[0].ratios}
    expected = {"prefill-8k", "hit-8k", "hit-8k-sliding", "evict-8k", "free-8k", "pool-1k"}
    if release.startswith("vllm"):
        expected |= {"decode-mamba-64", "request-xxhash", "request-sha256_cbor", "events-8k"}
    of_today = {entry.name for entry in DIFFERENT if entry.name.startswith("today-")}
    assert told & of_today == (of_today if release == "vllm==0.33.0" else set())
    lacks = {one.results[0].entry.name: one.results[0].lacks for one in measured}
    assert {name: lacks.get(name) for name in expected - told} == {}


# What is kept and checked.


def test_a_slower_core_fails_the_check_and_the_same_one_passes(tmp_path, monkeypatch, capsys):
    kept = tmp_path / "kept.json"
    pair = ("--target", PACED, "--against", REFERENCE, "--rounds", 3)
    assert bench(*pair, "--keep", kept) == 0
    assert bench(*pair, "--check", kept) == 0
    monkeypatch.setenv("PACED", "108")
    assert bench(*pair, "--check", kept) == 0  # 7 % worse is within what is tolerated
    capsys.readouterr()
    monkeypatch.setenv("PACED", "130")
    assert bench(*pair, "--check", kept) == 1
    said = capsys.readouterr().err
    assert "decode-64 is worse than the figures kept; measuring it 3 times more" in said
    assert f"decode-64: {REFERENCE} takes 0.77 times as long as {PACED}, kept is 1.00: 23% worse" in said


def test_what_is_worse_by_chance_is_measured_again():
    class Once(Bench):
        """Slow in what was measured first, and as fast as ever in the second try."""

        def __init__(self):
            super().__init__("impl", [])

        def measure(self, entry, rounds=0, preparations=1):
            assert (rounds, preparations) == (10, figures.PREPARATIONS)
            return Measured((result(entry.name, 2.0),), {})

    kept = {"mine | theirs": {"decode": 2.0}}
    said = []
    with closing(Once()) as ready:
        assert figures.confirmed(ready, [result("decode", 1.0)], kept, 10, said.append) == []
    assert len(said) == 1


def test_a_faster_core_and_one_that_lacks_it_are_not_worse():
    kept = {"mine | theirs": {"a": 1.0, "b": None, "c": 3.0}}
    assert figures.worse([result("a", 9.0), result("b", 0.1), result("c", lacks="not there")], kept) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "holds no figures (JSONDecodeError); write it with --keep"),
        ('{"ratios": {}}', "holds no figures for impl | impl, only for none; add them with --keep"),
        ('{"ratios": {"impl | impl": {"hit-8k": 1.0}}}', "holds no figure for decode-64 of impl | impl"),
    ],
)
def test_figures_that_are_not_there_are_wrong_usage(text, told, tmp_path, capsys):
    (tmp_path / "kept.json").write_text(text)
    assert bench("--against", "impl", "--check", tmp_path / "kept.json") == 2
    assert told in capsys.readouterr().err


def test_keeping_leaves_other_figures(tmp_path):
    path = tmp_path / "folder" / "kept.json"
    figures.keep(path, [result("a", 2.0, 4.0), result("b", lacks="why")])
    assert figures.read_figures(path) == {"mine | theirs": {"a": 2.0, "b": None}}  # the least that was measured
    figures.keep(path, [result("a", 5.0)])
    assert figures.read_figures(path) == {"mine | theirs": {"a": 5.0, "b": None}}


# What is written.


def test_pages_and_json_tell_ratio_spread_and_what_is_slower(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PACED", "200")
    page, pair = tmp_path / "bench.md", ("--target", PACED, "--against", REFERENCE, "--rounds", 3)
    assert bench(*pair, "--write", page) == 0
    text = page.read_text()
    assert text in capsys.readouterr().out
    assert "0.50 [0.50, 0.50] **slower**" in text
    prose = [line for line in text.splitlines() if not line.startswith("|") and "/" not in line]
    assert max(map(len, prose)) <= 110
    assert bench(*pair, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["geometric_mean"] == {REFERENCE: 0.5}
    assert [entry["name"] for entry in told["entries"]] == list(FEW)
    assert told["entries"][0]["slower"] is True


def test_a_page_shows_its_plots(tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "bench.md"
    pair = ("--target", PACED, "--against", "impl", "--only", "free-8k", "--rounds", 3)
    assert bench(*pair, "--write", page, "--plots", tmp_path / "plots") == 0
    assert page.read_text().endswith("\n![bench-impl](plots/bench-impl.svg)\n")
    assert (tmp_path / "plots" / "bench-impl.svg").is_file()


def test_json_for_a_pipe_stands_alone(capsys):
    assert bench("--target", PACED, "--against", REFERENCE, "--only", "free*", "--rounds", 3, "--json") == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)["entries"]] == ["free-8k"]


def test_the_mean_is_of_times_and_told_without_what_is_made_once():
    made = BenchResult(
        BenchEntry("pool", "pool", "construction", {}, is_made=True), "mine", "theirs", 1.0, 100.0, (100.0,)
    )
    told = [result("a", 1.0), result("b", 4.0), made, result("bytes", 900.0, kind="memory"), result("c", lacks="x")]
    assert mean_ratio(told[:2]) == pytest.approx(2)
    (line,) = summary_lines("mine", ["theirs"], [Measured((one,), {}) for one in told])
    assert "geometric mean 7.37 over 3 entries (2.00 over 2 without the construction of pools)" in line
    assert line.endswith("below 1.0: none")
    with pytest.raises(ValueError, match="nothing was measured"):
        mean_ratio(told[3:])


def test_traffic_is_told_with_its_ideal(tmp_path, capsys):
    trace = tmp_path / "chat.jsonl"
    rows = [{"input_length": 600, "output_length": 2, "hash_ids": [0, 1]}] * 3
    trace.write_text("".join(json.dumps(raw) + "\n" for raw in rows))
    assert bench("--against", "impl", "--only", "traffic*", "--traffic", trace, "--rounds", 3) == 0
    assert "| `traffic-chat` | impl | 1,800 | 65.8% | 65.8% | 0 | 0 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--only", "decod-64"], "decode-64"),
        (["--traffic", "absent.jsonl"], "absent.jsonl"),
        (["--against", "nonsense"], "--against: unknown target"),
        (["--scaling", "--keep", "x.json"], "--scaling: takes no --check"),
        (["--rounds", "1"], "rounds"),
    ],
)
def test_wrong_usage_is_a_line(options, told, capsys):
    assert bench(*options) == 2
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1


# Scaling and plots.

SIZES = {"pool": (1024,), "running": (1, 4), "length": (1024,), "groups": (1, 2)}


def test_cost_is_told_against_each_size(tmp_path):
    with opened(PACED, [REFERENCE]) as ready:
        curves = scaling.measure_scaling(ready, {**SIZES, "pool": (), "length": ()}, 3, lambda line: None)
    told = {(curve.axis, curve.operation) for curve in curves}
    assert ("running", "decode step") in told
    assert ("groups", "cold prefill of 8k tokens") in told
    (decode,) = [curve for curve in curves if curve.axis == "running"]
    assert decode.values(PACED) == [(1, 1000.0), (4, 1000.0)]
    page = scaling.markdown([PACED, REFERENCE], curves)
    assert f"| decode step, of a request | {PACED} | 1 µs | 1 µs | 1.00 |" in page
    document = scaling.document([PACED, REFERENCE], curves)
    assert (document.curves[0].axis, document.curves[0].operation) == ("running", "decode step")
    (tmp_path / "scaling.json").write_text(document.text())
    with pytest.raises(TraceError, match="is no campaign"):
        document_of(tmp_path / "scaling.json", TraceSettings(), before=tmp_path / "scaling.json")
    charts = document_of(tmp_path / "scaling.json", TraceSettings()).charts
    assert (charts[0].title, charts[0].y) == ("decode step, by running requests", "time of a request, ns")
    assert (charts[0].series[0].xs, charts[0].series[0].ys) == ([1, 4], [1000, 1000])


def test_every_axis_has_points():
    assert {axis for axis, _, _ in scaling.entries(SIZES)} == set(scaling.AXES)
    lengths = [
        entry.params["pool"] for axis, _, entry in scaling.entries() if axis == "length" and "pool" in entry.params
    ]
    assert min(lengths) > 128


def test_without_matplotlib_plots_are_wrong_usage(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert bench("--against", "impl", "--plots", tmp_path) == 2
    assert "pip install '/path/to/blockproof[bench]'" in capsys.readouterr().err


def test_plots_are_the_same_for_the_same_figures(tmp_path):
    pytest.importorskip("matplotlib")
    measured = [Measured((result("a", 2.0, 3.0),), {}), Measured((result("b", 0.5),), {})]
    first, second = (plots.plot_ratios(tmp_path / name, "mine", ["theirs"], measured) for name in "xy")
    assert [path.name for path in first] == ["bench-theirs.svg"]
    assert first[0].read_text() == second[0].read_text()
    point = scaling.Point("running", 4, "decode step", (result("a", 2.0),))
    (path,) = plots.plot_scaling(tmp_path, ["mine"], [scaling.ScalingCurve("running", "decode step", (point,))])
    assert "running requests" in path.read_text()
