"""What is true of one kind of attention stands in one place on each side; other files ask there."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from blockproof.model.config_json import MANAGED, Spec
from blockproof.model.ops import Kind

ROOT = Path(__file__).parents[1]
FOLDERS = ("model", "impl", "fuzz", "proofs")
PLAIN = {"full", "FullAttentionSpec", "FullAttentionManager"}
"""Full attention, which stands for a core of which only some group is asked: whoever adds a kind has no work there."""
KINDS = {*get_args(Kind)} - PLAIN
CLASSES = {spec.value for spec in MANAGED} - PLAIN
MANAGERS = {name.replace("Spec", "Manager") for name in CLASSES}
RULES = {"Sliding", "Chunked", "Cross"}
"""Rules of the model. `Mamba` is missing: it is what a rule of states is called, and asks for a record of its own."""


def named_kinds(source: str) -> Iterator[str]:
    """Kinds, spec classes, managers and rules that the source names: in code, or as a text that is one of them."""
    tree = ast.parse(source)
    parents = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docs = {id(node.body[0].value) for node in parents if node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            parts = set(node.value.removeprefix("Group.kind=").split("+"))
            yield from sorted(parts & KINDS if parts <= {*KINDS, "full"} else parts & (CLASSES | MANAGERS))
        elif isinstance(node, ast.alias):
            yield from {node.name} & (CLASSES | MANAGERS | RULES)
        elif isinstance(node, ast.Name):
            yield from {node.id} & (CLASSES | MANAGERS)
        elif isinstance(node, ast.Attribute):
            of_spec = isinstance(node.value, ast.Name) and node.value.id == "Spec" and node.attr in Spec.__members__
            yield from {Spec[node.attr].value if of_spec else node.attr} & (CLASSES | MANAGERS)


RECORDS = {
    "model/ops.py": "the names themselves, and the fields of a group",
    "model/attention.py": "the rules",
}
"""Where a kind is described."""

ABOUT_ONE_KIND: dict[str, str] = {}
"""Files whose subject is one kind, or a choice of some, which a new kind is no part of by itself."""

NOT_YET: set[str] = {
    "fuzz/adapters/lmdeploy/engine.py",
    "fuzz/adapters/sglang/batch_runs.py",
    "fuzz/adapters/sglang/engine.py",
    "fuzz/adapters/vllm/binding.py",
    "fuzz/adapters/vllm/configuration_deviations.py",
    "fuzz/adapters/vllm/deviations.py",
    "fuzz/adapters/vllm/reference_groups.py",
    "fuzz/adapters/vllm/releases.py",
    "fuzz/adapters/vllm/scheduler.py",
    "fuzz/adapters/vllm/scheduler_config.py",
    "fuzz/adapters/vllm/scheduler_connector.py",
    "fuzz/adapters/vllm/scheduler_draw.py",
    "fuzz/adapters/vllm/scheduler_known.py",
    "fuzz/adapters/vllm/scheduler_mixes.py",
    "fuzz/adapters/vllm/scheduler_real_remote.py",
    "fuzz/adapters/vllm/scheduler_real_runs.py",
    "fuzz/adapters/vllm/scheduler_real_workers.py",
    "fuzz/adapters/vllm/scheduler_remedies.py",
    "fuzz/adapters/vllm/search.py",
    "fuzz/bench/entries.py",
    "fuzz/bench/workload.py",
    "fuzz/configuration/draw.py",
    "fuzz/configuration/invariants.py",
    "fuzz/configuration/parts.py",
    "fuzz/configuration/pieces.py",
    "fuzz/configuration/questions.py",
    "fuzz/configuration/reach.py",
    "fuzz/configuration/specs.py",
    "fuzz/exploration/core_side.py",
    "fuzz/exploration/planting.py",
    "fuzz/exploration/scope_faults.py",
    "fuzz/exploration/scopes.py",
    "fuzz/faults/asked.py",
    "fuzz/faults/real_sizing.py",
    "fuzz/oracles/contract/block_answers.py",
    "fuzz/oracles/contract/hits.py",
    "fuzz/oracles/contract/landing.py",
    "fuzz/oracles/contract/pool.py",
    "fuzz/oracles/contract/published.py",
    "fuzz/oracles/contract/room.py",
    "fuzz/oracles/contract/run_record.py",
    "fuzz/oracles/contract/steps.py",
    "fuzz/oracles/liveness/bounds.py",
    "fuzz/oracles/liveness/rules.py",
    "fuzz/oracles/liveness/script.py",
    "fuzz/oracles/shadow/engine.py",
    "fuzz/oracles/shadow/engine_state.py",
    "fuzz/oracles/shadow/tensors.py",
    "fuzz/page/words.py",
    "fuzz/planning/attention.py",
    "fuzz/planning/explicit.py",
    "fuzz/planning/mamba.py",
    "fuzz/planning/parts.py",
    "fuzz/planning/plan.py",
    "fuzz/planning/questions.py",
    "fuzz/planning/show.py",
    "fuzz/runs/conformance/check.py",
    "fuzz/runs/model_free.py",
    "fuzz/targets/adapting.py",
    "fuzz/targets/declarations.py",
    "fuzz/testing/stateful_rules.py",
    "fuzz/traces/shrink.py",
    "fuzz/traces/simplify.py",
    "fuzz/traces/trace_file.py",
    "fuzz/traffic/driver.py",
    "fuzz/workload/bounds.py",
    "fuzz/workload/cuts.py",
    "fuzz/workload/operations.py",
    "fuzz/workload/shapes.py",
    "fuzz/workload/steps.py",
    "fuzz/workload/tuning.py",
    "impl/compat.py",
    "impl/configuration/block_sizes.py",
    "impl/configuration/grouping.py",
    "impl/configuration/page_unification.py",
    "impl/configuration/uniformity.py",
    "impl/managers/base.py",
    "impl/managers/by_spec.py",
    "impl/managers/coordinator.py",
    "impl/managers/full.py",
    "impl/managers/mamba.py",
    "impl/managers/window.py",
    "impl/specs/attention.py",
    "impl/specs/base.py",
    "impl/specs/interface.py",
    "impl/tensors/block_tables.py",
    "impl/tensors/layout.py",
    "model/config/capacity.py",
    "model/config/grouping.py",
    "model/config/layers.py",
    "model/config_json.py",
    "model/core.py",
    "model/legal.py",
    "model/pieces/classes.py",
    "model/shown/snapshot.py",
    "model/tables.py",
    "proofs/hybrid_scopes.py",
    "proofs/hybrid_search.py",
    "proofs/hybrid_subjects.py",
    "proofs/invariants/random_runs.py",
    "proofs/roles/hits.py",
    "proofs/roles/model_request.py",
    "proofs/roles/one_request.py",
    "proofs/roles/slots.py",
    "proofs/roles/windows.py",
    "proofs/theorems/hits.py",
    "proofs/theorems/horizons.py",
    "proofs/theorems/prediction.py",
}
"""Files that name kinds and should ask the records instead. The list only gets shorter."""


def files_that_name_kinds() -> set[str]:
    """Of the packages, relative to the repository."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix() for path in paths if any(named_kinds(path.read_text(encoding="utf-8")))}


def test_kinds_are_named_where_they_are_described():
    """Fails in both directions: where another file names a kind, and where a listed file no longer does."""
    listed = {*RECORDS, *ABOUT_ONE_KIND, *NOT_YET}
    assert len(listed) == len(RECORDS) + len(ABOUT_ONE_KIND) + len(NOT_YET), "a file is listed twice"
    found = files_that_name_kinds()
    assert found - listed == set(), "ask the record of the kind, or the model's rule, for what is needed"
    assert listed - found == set(), "take it off the list"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("kind == 'chunked'", ["chunked"]),
        ("has('Group.kind=cross')", ["cross"]),
        ("draw('full+sliding')", ["sliding"]),
        ("isinstance(spec, SlidingWindowSpec)", ["SlidingWindowSpec"]),
        ("names('MambaSpec')", ["MambaSpec"]),
        ("layer.type == Spec.CHUNK", ["ChunkedLocalAttentionSpec"]),
        ("from ..model.attention import Chunked", ["Chunked"]),
        ('"""A chunked group."""\nkind = "full"', []),
        ("'''mamba'''\nwords = 'mamba states'", []),
        ("publish(chunked=True)", []),
    ],
)
def test_a_named_kind_is_noticed(source, found):
    assert list(named_kinds(source)) == found
