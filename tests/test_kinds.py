"""What is true of one kind of attention stands in one place on each side; other files ask there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from blockproof.model.attention import RULES
from blockproof.model.config_json import MANAGED, SPECS, Spec
from blockproof.model.ops import Kind

ROOT = Path(__file__).parents[1]
FOLDERS = ("model", "impl", "fuzz", "proofs")
PLAIN = {"full", "FullAttentionSpec", "FullAttentionManager"}
"""Full attention, which stands for a core of which only some group is asked: whoever adds a kind has no work there."""
KINDS = {*get_args(Kind)} - PLAIN
CLASSES = {spec.value for spec in MANAGED} - PLAIN
MANAGERS = {SPECS[spec].manager for spec in MANAGED} - PLAIN
RULE_NAMES = {rule.__name__ for rule in RULES.values()} - {"Full", "Mamba"}
"""Rules of the model; `Mamba` is what says whether a group keeps states."""


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
            yield from {node.name} & (CLASSES | MANAGERS | RULE_NAMES)
        elif isinstance(node, ast.Name):
            yield from {node.id} & (CLASSES | MANAGERS)
        elif isinstance(node, ast.Attribute):
            of_spec = isinstance(node.value, ast.Name) and node.value.id == "Spec" and node.attr in Spec.__members__
            yield from {Spec[node.attr].value if of_spec else node.attr} & (CLASSES | MANAGERS)


RECORDS = (
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "fuzz/kinds").glob("*.py"))),
    "model/ops.py",
    "model/attention.py",
    "model/config_json.py",
    "model/kinds/__init__.py",
    "model/kinds/pool_kinds.py",
    "model/kinds/ring.py",
    "model/kinds/rswa.py",
    "fuzz/adapters/vllm/engine/scheduler_groups.py",
    "fuzz/exploration/scopes.py",
    "impl/specs/attention.py",
    "impl/specs/base.py",
    "impl/specs/interface.py",
    "impl/managers/by_spec.py",
    "impl/managers/full.py",
    "impl/managers/mamba.py",
    "impl/managers/window.py",
    "impl/today/managers.py",
    "proofs/roles/kinds.py",
    "proofs/hybrid_scopes.py",
    "proofs/hybrid_subjects.py",
)
"""Where a kind is described: its rule and its specs in the model; how it is drawn, said and called in the harness; its
spec and its manager in the core; its roles in the proofs."""

ABOUT_SOME_KINDS = {
    "model/config/capacity.py": "states make hashes small",
    "model/config/grouping.py": "latent windows are grouped in a way of their own",
    "model/features/pool_room.py": "the kinds of a core with a pool of the host",
    "model/features/pools.py": "the kinds of a core with a pool of the host",
    "model/config/layers.py": "pages of packed layers, of states and of encoders",
    "fuzz/adapters/lmdeploy/engine.py": "the kinds that the engine has",
    "fuzz/adapters/lmdeploy/parts.py": "the kinds that the engine has",
    "fuzz/adapters/lmdeploy/simulated.py": "the kinds that the engine has",
    "fuzz/adapters/sglang/engine.py": "the kinds that the engine has",
    "fuzz/adapters/sglang/simulated.py": "the kinds that the engine has",
    "fuzz/adapters/sglang/disaggregation.py": "the kinds that the engine has",
    "fuzz/adapters/transformers/binding.py": "the kinds that the engine has",
    "fuzz/adapters/transformers/engine.py": "the kinds that the engine has",
    "fuzz/adapters/vllm/pools.py": "which group is in the pool of the host",
    "fuzz/adapters/vllm/configuration/asked_today.py": "the kinds that a release lacks",
    "fuzz/adapters/vllm/configuration/configuration_0330.py": "what releases compute otherwise, class by class",
    "fuzz/adapters/vllm/configuration/configuration_deviations.py": "what releases compute otherwise, class by class",
    "fuzz/adapters/vllm/deviations/deviations_0230.py": "what releases decide otherwise for chunks",
    "fuzz/adapters/vllm/configuration/placement_today.py": "states are whole, and zeroed",
    "fuzz/adapters/vllm/configuration/rules_today.py": "what cores of today compute otherwise, class by class",
    "fuzz/adapters/vllm/configuration/reference_groups.py": "what releases compute otherwise, class by class",
    "fuzz/adapters/vllm/releases.py": "the kinds that a release lacks",
    "fuzz/adapters/vllm/engine/cases.py": "stories of findings",
    "fuzz/adapters/vllm/pairs/released_pair.py": "the kinds that pairs are tried with",
    "fuzz/adapters/vllm/pairs/moriio_pair.py": "the kinds that the connector takes",
    "fuzz/adapters/vllm/pairs/moriio_write.py": "the kinds that the connector takes in this mode",
    "fuzz/adapters/vllm/engine/simulated.py": "the kinds that the engine has",
    "fuzz/adapters/vllm/engine/scheduler_config.py": "what chunks and states go with",
    "fuzz/simulation/traffic.py": "states of drafts",
    "fuzz/adapters/vllm/deviations/search.py": "how releases look for chunks",
    "fuzz/bench/entries.py": "the cores that are timed",
    "fuzz/bench/workload.py": "the cores that are timed",
    "fuzz/adapters/vllm/configuration/records_today.py": "what specs of today say of themselves, class by class",
    "fuzz/configuration/invariants.py": "hidden states, which are grouped apart",
    "fuzz/configuration/parts.py": "a release builds no core of sinks, and refuses lookups with chunks",
    "fuzz/configuration/pieces.py": "a manager that is registered for another class",
    "fuzz/configuration/reach.py": "hidden states, which are grouped apart",
    "fuzz/configuration/specs.py": "the layers of one model",
    "fuzz/configuration/today.py": "specs of today, R-SWA, rings and pools of the host among them, by their own fields",
    "fuzz/engines/walked_scopes.py": "the scopes of the rule of today",
    "fuzz/exploration/planting.py": "the cores in which planted faults show",
    "fuzz/exploration/scope_faults.py": "the scopes in which planted faults show",
    "fuzz/faults/asked.py": "planted faults",
    "fuzz/faults/real_sizing.py": "planted faults",
    "fuzz/oracles/chunk_losses.py": "what releases are known for where chunks lie badly",
    "fuzz/planning/attention.py": "families of models with latent and with cross attention",
    "fuzz/planning/mamba.py": "families of models with states",
    "impl/compat.py": "a default of states that the engine has",
    "impl/configuration/block_sizes.py": "states make hashes small",
    "impl/configuration/grouping.py": "latent windows are grouped in a way of their own",
    "impl/configuration/page_unification.py": "states are padded",
    "impl/configuration/uniformity.py": "what latent windows become where all is full attention",
    "impl/managers/base.py": "whose new blocks are told",
    "fuzz/oracles/shadow/pooled.py": "two pools, with regions for what is read from the host",
    "impl/managers/coordinator.py": "states, and a retention interval that needs windows",
    "impl/today/coordinator.py": "states, and a retention interval that needs windows",
    "impl/today/__init__.py": "names of specs",
    "impl/today/under_vllm.py": "our spec for each of vLLM's",
    "impl/today/windows.py": "specs of windows that keep more than they read",
    "impl/today/checkpoints.py": "states inside a step",
    "impl/today/states.py": "names of states, which are offered",
    "impl/tensors/table_layout.py": "blocks for states of drafts",
    "impl/tensors/layout.py": "pages of packed layers, of states and of vectors",
    "proofs/invariants/random_runs.py": "the cores of random runs",
    "proofs/roles/admission.py": "a window of which some is settled",
    "proofs/roles/hits.py": "the blocks that a window needs",
    "proofs/roles/slots.py": "pages of states, and a spec of a window for a group",
    "proofs/roles/windows.py": "the horizon of states",
    "proofs/theorems/first_steps.py": "theorems, kind by kind",
    "proofs/theorems/hits.py": "theorems, kind by kind",
    "proofs/theorems/horizons.py": "theorems, kind by kind",
    "proofs/theorems/prediction.py": "theorems, kind by kind",
}
"""Files whose subject is one kind, or a choice of some, of which a new kind is no part by itself; and why."""


def files_that_name_kinds() -> set[str]:
    """Of the packages, relative to the repository."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix() for path in paths if any(named_kinds(path.read_text(encoding="utf-8")))}


def test_kinds_are_named_where_they_are_described():
    """Fails in both directions: where another file names a kind, and where a listed file no longer does."""
    listed = {*RECORDS, *ABOUT_SOME_KINDS}
    assert len(listed) == len(RECORDS) + len(ABOUT_SOME_KINDS), "a file is listed twice"
    found = files_that_name_kinds()
    assert found - listed == set(), "ask the record of the kind, or the model's rule, for what is needed"
    assert set(ABOUT_SOME_KINDS) - found == set(), "take it off the list"


def test_the_list_for_contributors_is_complete():
    """It names the records of the kind that it says to follow, all of them; and no file that has nothing of it."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split("### An attention type")[1].split("### ")[0]
    listed = set(re.findall(r"`((?:model|impl|fuzz|proofs)/[\w/]+\.py)`", section)) - {"fuzz/adapters/vllm/releases.py"}
    example = {"chunked", "Chunked", "ChunkedLocalAttentionSpec", "ChunkedLocalAttentionManager"}
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in {*listed, *RECORDS}}
    assert {path for path in RECORDS if example & set(named_kinds(sources[path]))} - listed == set(), "not listed"
    assert {path for path in listed if "chunk" not in sources[path]} == set(), "these have nothing of the example"


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
