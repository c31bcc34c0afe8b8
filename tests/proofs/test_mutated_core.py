"""A core with a mistake in its arithmetic, or with a function missing, makes `prove` fail, which names the theorem."""

import importlib
import inspect
import os
import shutil
import subprocess
import sys
import textwrap
from functools import reduce
from pathlib import Path
from types import CodeType

import blockproof.impl
import pytest
from blockproof.proofs import expectations, judgement, roles
from blockproof.proofs.campaign import Result
from blockproof.proofs.theorems import BY_ID

WINDOW = "managers.window:SlidingWindowManager.get_num_skipped_tokens"
HIT = "managers.window:SlidingWindowManager._contiguous_blocks_for_hit"
CAP = "specs.attention:SlidingWindowSpec.max_admission_blocks_per_request"
MUTATIONS = [
    # function, what it says, what it says instead, the theorem that is refuted then
    (WINDOW, "window + 1", "window + 2", "T1"),
    (WINDOW, "window + 1", "window", "T1"),
    (WINDOW, "max(0,", "max(1,", "T3.sliding"),
    (HIT, "window_size - 1", "window_size", "T8"),
    (HIT, "1 if use_eagle", "2 if use_eagle", "T9"),
    ("managers.hit_search:before_chunk", "query // chunk", "(query + 1) // chunk", "T2"),
    ("managers.mamba:MambaManager.get_num_skipped_tokens", "- 1", "- 2", "T1.states"),
    ("specs.base:cdiv", "-(-a // b)", "a // b", "T17.cdiv"),
    ("specs.base:cdiv", "-(-a // b)", "a // b + 1", "T7.fits"),
    (CAP, "sliding_window - 1", "sliding_window - 2", "T5.gap"),
    (CAP, ".block_size) + 1", ".block_size)", "T4"),
    ("specs.attention:ChunkedLocalAttentionSpec.max_admission_blocks_per_request", " + astride", "", "T6"),
    (
        "managers.base:SingleTypeKVCacheManager.get_num_blocks_to_allocate",
        "(num_tokens,",
        "(num_tokens + 1,",
        "T7.full",
    ),
    ("managers.base:SingleTypeKVCacheManager.allocate_new_blocks", "- len(table)", "- len(table) + 1", "T7.fits"),
    ("pool.block_pool:BlockPool.get_usage", "self.num_gpu_blocks - 1", "self.num_gpu_blocks", "T24"),
]


def problems(name):
    """What `prove` finds wrong with a theorem on our core as it is now."""
    verdict = BY_ID[name].settle(roles.subject("impl"), with_controls=False)
    return judgement.problems([Result(verdict)], expectations.read(["impl"]))


def mutated(place, old, new):
    """A function of our core, and its code with a part of one line changed."""
    module_name, _, name = place.partition(":")
    module = importlib.import_module(f"blockproof.impl.{module_name}")
    found = reduce(getattr, name.split("."), module)
    function = getattr(found, "__func__", found)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{place} does not say {old!r} any more: choose another mutation"
    constants = compile(source.replace(old, new), str(module.__file__), "exec").co_consts
    return function, next(constant for constant in constants if isinstance(constant, CodeType))


@pytest.mark.parametrize("theorem", sorted({theorem for *_, theorem in MUTATIONS}))
def test_nothing_is_wrong_with_the_core_as_it_is(theorem):
    assert problems(theorem) == []


@pytest.mark.parametrize(("place", "old", "new", "theorem"), MUTATIONS)
def test_a_wrong_number_in_our_core_fails_and_the_theorem_is_named(place, old, new, theorem, monkeypatch):
    function, code = mutated(place, old, new)
    monkeypatch.setattr(function, "__code__", code)
    (problem,) = problems(theorem)
    assert problem.startswith(f"{theorem} on impl: refuted by ")
    assert "but declared proved" in problem


def test_theorems_that_vanish_with_a_class_of_the_core_are_a_failure_that_names_them(tmp_path):
    """The whole command, on a copy of our core in which one class is not exported."""
    root, package = Path(__file__).parents[2], tmp_path / "blockproof"
    package.mkdir()
    for folder in ("model", "fuzz", "proofs", "docs", "examples"):
        (package / folder).symlink_to(root / folder, target_is_directory=True)
    shutil.copytree(Path(str(blockproof.impl.__file__)).parent, package / "impl")
    with (package / "impl" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("\ndel ChunkedLocalAttentionManager\n")
    done = subprocess.run(
        [sys.executable, "-m", "blockproof.fuzz.cli", "prove", "T1", "T2", "--target", "impl", "--no-cross-check"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    problem = "T2 on impl: unavailable: our core has no ChunkedLocalAttentionManager, but declared proved; "
    assert done.stdout.splitlines()[-1].startswith(problem)
    assert "T1 on impl" not in done.stdout
