"""`blockproof plan`: the table, the document for machines, exit codes, wrong input, the dry run."""

import json
import sys
from pathlib import Path

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.cli.plan import parse_memory
from blockproof.fuzz.targets.base import TargetLostError

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))
GIB = 2**30
LLAMA = str(EXAMPLES / "llama-3.1-8b.json")
FULL = {"name": "a", "type": "FullAttentionSpec", "num_kv_heads": 3, "head_size": 64}
WINDOW = {"name": "b", "type": "SlidingWindowSpec", "num_kv_heads": 2, "head_size": 64, "sliding_window": 5}
STATE = {"name": "m", "type": "MambaSpec", "shapes": [[3, 8]], "dtypes": ["bf16"]}


@pytest.fixture
def wrong(tmp_path):
    """A file with this document."""

    def write(document):
        path = tmp_path / "model.json"
        path.write_text(json.dumps({"max_model_len": 64, **document}))
        return str(path)

    return write


def run(capsys, *arguments):
    """Exit code and the two outputs of `blockproof plan`."""
    code = cli.main(["plan", *map(str, arguments)])
    return code, *capsys.readouterr()


# What is shown.


def test_the_table_says_what_is_planned_and_whether_it_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, EXAMPLES / "gemma-3-27b.json", "--memory", "60GiB", "--max-model-len", "131072")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "google/gemma-3-27b-it (gemma3_text, 62 cached layers), figures of impl"
    assert "0-3   4 x 9  window 1,024     16 131,072       -   10.0 %    577 4 x 577" in lines
    assert "6     10     full             16 131,072       -        -      -   8,192" in lines
    assert lines[-1] == "fits: 4.22 requests of 131,072 tokens at once"


def test_help_has_an_example(capsys):
    code, out, _ = run(capsys, "-h")
    assert code == 0
    assert "Example: blockproof plan examples/" in out


def test_what_does_not_fit_exits_with_1_and_names_the_length_that_does(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(capsys, EXAMPLES / "llama-3.1-8b.json", "--memory", "1GiB", "--max-model-len", "8193")
    assert code == 1
    assert "does not fit: a request of 8,193 tokens needs 513 blocks, the pool has 512; the longest that" in out
    assert "the longest that fits is 8,176 tokens" in out
    code, out, _ = run(capsys, EXAMPLES / "llama-3.1-8b.json", "--memory", "1MiB", "--max-model-len", "auto")
    assert code == 1
    assert "not even one token fits" in out


def test_the_null_block_counts_whether_or_not_it_is_asked_for(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    arguments = [EXAMPLES / "llama-3.1-8b.json", "--memory", "1GiB", "--max-model-len", "8192"]
    for options in ((), ("--strict",)):
        code, out, _ = run(capsys, *arguments, *options)
        assert code == 1
        assert "needs 513 blocks, the null block counted, the pool has 512" in out
        assert "the longest that fits is 8,176 tokens" in out


def test_the_document_for_machines_has_the_documented_fields(capsys):
    arguments = [EXAMPLES / "gemma-3-27b.json", "--memory", "60GiB", "--workers", "2", "--json"]
    code, out, err = run(capsys, *arguments)
    document = json.loads(out)
    assert (code, err, document["ok"]) == (0, "", True)
    described = (EXAMPLES.parent / "docs" / "guide" / "plan.md").read_text()
    shown = [*document, *document["groups"][0], *document["workers"][0]]
    assert [name for name in shown if f"`{name}`" not in described] == []
    # Whatever is counted says what it counts.
    units = ("_bytes", "_blocks", "_tokens", "_percent")
    bare = {"layers", "group", "worker", "pipeline_stage"}
    for record in (document, *document["groups"], *document["workers"]):
        for name, value in record.items():
            assert type(value) is not int or name.endswith(units) or name in bare, name
    assert document["max_model_len_tokens"] == 131_072
    assert [worker["memory_bytes"] for worker in document["workers"]] == [60 * GIB] * 2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 2**20),
        ("1B", 1),
        ("60GiB", 60 * GIB),
        ("80 GB", 80 * 10**9),
        ("1.5TiB", 3 * 2**39),
        ("512mib", 2**29),
        ("1EiB", None),
    ],
)
def test_sizes_of_memory(text, size, capsys):
    if size is None:
        code, _, err = run(capsys, EXAMPLES / "llama-3.1-8b.json", "--memory", text)
        assert code == 2
        assert "is not a size" in err
    else:
        assert parse_memory(text) == size


def test_a_target_that_is_lost_exits_with_3(capsys, monkeypatch):
    class Lost:
        name = "lost"

        def ask(self, op, inputs):
            raise TargetLostError("crash", "exit status 1")

        def close(self):
            pass

    monkeypatch.setattr("blockproof.fuzz.opening.targets.open_calculator", lambda spec, isolate: Lost())
    code, out, err = run(capsys, LLAMA, "--memory", "1GiB")
    assert (code, out) == (3, "")
    assert err == "blockproof: impl was lost while it was asked: crash: exit status 1\n"


# Wrong input.


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--memory", "-5GiB"], "--memory: '-5GiB': there must be more than 0 bytes"),
        (["--memory", "0"], "--memory: '0': there must be more than 0 bytes"),
        (["--memory", "plenty"], "--memory: 'plenty' is not a size; write bytes, or as in 60GiB"),
        (["--memory", "60G"], "'60G' is not a size"),
        (["--memory", "40"], "--memory: 40 is 40 bytes; did you mean 40GiB?"),
        (["--memory", "1GiB, 1048575"], "--memory: 1048575 is 1048575 bytes; did you mean"),
        (["--memory", ""], "'' is not a size"),
        (["--memory", "nan"], "'nan' is not a size"),
        (["--memory", "9" * 40 + "GiB"], "is more than 1 EiB"),
        (["--memory", "99999999999GiB"], "is more than 1 EiB"),
        (["--memory", "1GiB,2GiB"], "--memory names 2 workers, there are 1"),
        (["--memory", "1GiB,"], "'' is not a size"),
        (["--max-model-len", "0"], "--max-model-len: 0: must be in 1 .."),
        (["--max-model-len", "-2"], "--max-model-len: -2: must be in 1 .."),
        (["--max-model-len", "9" * 30], "must be in 1 .."),
        (["--max-model-len", "9" * 5000], "is not a number of tokens"),
        (["--max-model-len", "soon"], "--max-model-len: 'soon' is not a number of tokens; write one, or auto"),
        (["--block-size", "0"], "--block-size"),
        (["--block-size", "99999999999999999999"], "--block-size"),
        (["--max-num-batched-tokens", "0"], "--max-num-batched-tokens"),
        (["--override-blocks", "0"], "--override-blocks"),
        (["--tensor-parallel", "0"], "--tensor-parallel"),
        (["--tensor-parallel", "3"], "cannot be divided by the tensor-parallel size (3)"),
        (["--pipeline-parallel", "33"], "33 pipeline stages for 32 layers"),
        (["--pipeline-parallel", "1024", "--tensor-parallel", "32"], "32,768 workers; at most 1,024"),
        (["--workers", "2", "--tensor-parallel", "2"], "--workers: give either it, or --tensor-parallel"),
        (["--dtype", "int4"], "--dtype: 'int4' is unknown; choose from auto, bf16"),
        (["--cache-dtype", "int4"], "--cache-dtype: 'int4' is unknown; choose from auto, bf16"),
        (["--mamba-ssm-cache-dtype", "fp8"], "--mamba-ssm-cache-dtype: 'fp8' is unknown"),
        (["--mamba-cache-mode", "some"], "--mamba-cache-mode"),
        (["--target", "our core"], "--target: unknown target 'our core'"),
    ],
)
def test_wrong_options_are_refused_in_one_line(arguments, part, capsys):
    memory = [] if "--memory" in arguments else ["--memory", "1GiB"]
    _expect_one_line(run(capsys, LLAMA, *memory, *arguments), part)


@pytest.mark.parametrize(
    ("document", "options", "part"),
    [
        ({"layers": []}, [], "no layer of this model keeps a cache"),
        ({"layers": [FULL, WINDOW]}, [], "pages of 8,192 and 12,288 bytes cannot be made equal: each must divide"),
        ({"layers": [FULL, STATE]}, ["--no-hybrid"], "--no-hybrid: all layers must become one kind, and these cannot"),
        ({"layers": [{**FULL, "page_size_padded": 7}]}, [], "layer 'a': impl refuses its spec (AssertionError)"),
        ({"layers": [{**STATE, "dtypes": ["bf16"] * 2}]}, [], "layer 'm': impl refuses its spec (ValueError)"),
        ({"layers": [{**FULL, "num_kv_heads": 2**30}]}, [], "layer 'a': a block takes 4,398,046,511,104 bytes; check"),
        ({"layers": [FULL, FULL]}, [], "layers[1]: layer 'a' is named twice"),
        ({"model_type": "opt"}, [], "unknown family: model_type 'opt'"),
    ],
)
def test_wrong_models_are_refused_in_one_line(document, options, part, wrong, capsys):
    _expect_one_line(run(capsys, wrong(document), "--memory", "1GiB", *options), part)


def test_missing_files_and_options_are_refused_in_one_line(capsys, tmp_path):
    _expect_one_line(run(capsys, "none.json", "--memory", "1GiB"), "none.json: no such file")
    _expect_one_line(run(capsys, tmp_path, "--memory", "1GiB"), "is a directory; name a config.json file in it")
    _expect_one_line(run(capsys, LLAMA), "Missing option '--memory'")


def _expect_one_line(result, part):
    code, out, err = result
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("blockproof: ")
    assert part in line


# The dry run.


def test_a_dry_run_without_torch_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run(capsys, LLAMA, "--memory", "60GiB", "--dry-run")
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        "blockproof: --dry-run needs torch, which the extra `tensors` brings: "
        "pip install '/path/to/blockproof[tensors]'"
    ]


def test_a_dry_run_of_what_does_not_fit_says_so(capsys):
    code, _, err = run(capsys, LLAMA, "--memory", "1GiB", "--max-model-len", "8193", "--dry-run")
    assert code == 1
    assert err == "blockproof: nothing to allocate: the plan does not fit\n"


@pytest.mark.parametrize("example", NAMES)
def test_a_dry_run_lays_out_every_layer(example, capsys):
    pytest.importorskip("torch")
    path = EXAMPLES / f"{example}.json"
    code, out, _ = run(
        capsys, path, "--memory", "60GiB", "--max-model-len", "auto", "--pipeline-parallel", "2", "--dry-run", "--json"
    )
    document = json.loads(out)
    assert code == 0
    assert document["dry_run"]["workers"] == 2
    assert document["dry_run"]["layers"] == sum(len(group["layers"]) for group in document["groups"])
    assert document["dry_run"]["bytes"] == document["num_blocks"] * document["block_bytes"]
