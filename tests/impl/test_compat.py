"""What an engine sees after `compat.install()`."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from blockproof import impl
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.opening.targets import interpreter_of
from blockproof.impl import compat

RELEASE = "vllm==0.23.0"
SURFACE = Path(__file__).parents[2].parent / "shared" / "spec" / "api-surface.json"
needs_release = pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")


def in_the_release(tmp_path: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    _, place = interpreter_of(RELEASE)
    assert place is not None
    environment = {**environment_of(place, tmp_path, ("model", "fuzz", "impl")), "VLLM_LOGGING_LEVEL": "ERROR"}
    python = [str(place.python), "-P", *command]
    return subprocess.run(python, env=environment, capture_output=True, text=True, timeout=300)


OURS = """
from blockproof.impl import *
from blockproof.impl.managers import stats as _stats
from blockproof.impl.pool import events as _events, metrics as _metrics
"""
TOY = {
    "torch": "class float32: itemsize = 4",
    "vllm.logger": "from logging import getLogger as init_logger",
    "vllm.platforms": "class current_platform:\n    register_custom_kv_cache_specs = staticmethod(lambda config: None)",
    "vllm.distributed.kv_events": OURS
    + "from typing import NamedTuple\n"
    + "".join(
        f"class {name}(_events.{name}): pass\n"
        for name in ("KVCacheEvent", "BlockStored", "BlockRemoved", "AllBlocksCleared")
    )
    + "class KVEventBatch(NamedTuple):\n    ts: float\n    events: list",
    "vllm.utils.hashing": "from blockproof.impl.hashing.hash_functions import *\n"
    "from blockproof.impl.hashing.hash_functions import sha256, sha256_cbor, xxhash, xxhash_cbor",
    "vllm.v1.attention.backends.registry": "from enum import Enum\nMambaAttentionBackendEnum = "
    "Enum('MambaAttentionBackendEnum', 'MAMBA1 MAMBA2', module=__name__)",
    "vllm.v1.core.scheduler": "",
    "vllm.v1.metrics.stats": OURS
    + "class PrefixCacheStats(_stats.PrefixCacheStats): pass\n"
    + "class KVCacheEvictionEvent(_metrics.KVCacheEvictionEvent): pass",
    "vllm.v1.request": "class Request: pass",
    "vllm.v1.utils": "def tensor_data(tensor): return b''",
}
"""By its name, what each module that is not replaced has to have: an engine of that series in few lines."""


def in_a_toy(
    folder: Path, script: Path, toy: Mapping[str, str] = TOY, version: str = "0.23.0"
) -> "subprocess.CompletedProcess[str]":
    """Runs the script where the modules of the toy are all that there is of vLLM."""
    for name, text in toy.items():
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    told = folder / f"vllm-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    places = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    return subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module", params=["toy", pytest.param("release", marks=needs_release)])
def seen(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    """In the release, and in a toy of it, in which nothing but our modules can be what passes."""
    script, folder = Path(__file__).with_name("in_place_of_vllm.py"), tmp_path_factory.mktemp("modules")
    done = in_a_toy(folder, script) if request.param == "toy" else in_the_release(folder, str(script))
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[-1])


@pytest.mark.slow
def test_every_name_of_the_eight_modules_is_ours(seen: Any) -> None:
    assert seen["missing"] == []
    assert seen["passed_on"] == ["vllm.v1.request", "vllm.v1.utils"]
    assert seen["registry"] == "FullAttentionManager"


def test_events_samples_and_statistics_are_of_the_engines_classes(seen: Any) -> None:
    names = [f"vllm.distributed.kv_events.{name}" for name in ("BlockStored", "AllBlocksCleared")]
    assert seen["events"] == [names, True]
    assert seen["samples"]
    assert seen["statistics"]
    assert seen["mamba"] == "vllm.v1.attention.backends.registry"


def test_what_is_set_in_a_module_is_what_the_core_uses(seen: Any) -> None:
    length, own_parent, length_again, reloaded_in_place, warnings = seen["live"]
    assert length == length_again == 32
    assert own_parent
    assert reloaded_in_place
    assert warnings == 1


def test_the_retention_interval_is_that_of_the_environment(seen: Any) -> None:
    assert seen["retention"] == [32, None]


@needs_release
@pytest.mark.slow
def test_a_core_that_is_loaded_already_is_not_replaced(tmp_path: Path) -> None:
    code = "import vllm.v1.core.block_pool; from blockproof.impl import compat; compat.install()"
    done = in_the_release(tmp_path, "-c", code)
    assert done.returncode == 1
    assert "is imported already: call install() before" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("version", "part"), [(None, "vllm is not installed here"), ("0.31.0", "vllm 0.31.0 is installed, but")]
)
def test_only_the_series_whose_modules_we_have_is_replaced(
    version: str | None, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", told)
    with pytest.raises(RuntimeError, match=part):
        compat.install()


@pytest.mark.skipif(not SURFACE.exists(), reason="the list of names is not here")
def test_the_names_that_programs_import_are_there() -> None:
    wanted = json.loads(SURFACE.read_text())["modules"]
    assert set(wanted) == set(compat.REPLACED)
    # NONE_HASH is there once it is set.
    names = [(module, name) for module, every in wanted.items() for name in every if name != "NONE_HASH"]
    assert [pair for pair in names if not hasattr(compat.REPLACED[pair[0]], pair[1])] == []


class StoreOutside:
    """A pool that a connector makes up: it knows of a store outside which blocks that has."""

    def __init__(self, *has: bytes) -> None:
        self.null_block, self.present, self.has = impl.KVCacheBlock(0), impl.KVCacheBlock(1), has

    def get_cached_block(self, content: bytes, group_ids: list[int]) -> list[impl.KVCacheBlock] | None:
        return [self.present] * len(group_ids) if content in self.has else None


LAYOUT: dict[str, Any] = {"num_kv_heads": 1, "head_size": 1, "dtype": bytes}


@pytest.mark.parametrize(
    ("spec", "kind", "null"),
    [
        (impl.FullAttentionSpec(2, **LAYOUT), impl.FullAttentionManager, [False, False, False]),
        (impl.SlidingWindowSpec(2, sliding_window=2, **LAYOUT), impl.SlidingWindowManager, [True, True, False]),
    ],
)
def test_a_manager_tells_what_of_a_store_outside_is_a_hit(spec: Any, kind: Any, null: list[bool]) -> None:
    hashes = [impl.BlockHash(name) for name in (b"a", b"b", b"c", b"d")]
    store = StoreOutside(*hashes[:3])
    (row,) = kind.find_longest_cache_hit(hashes, 8, [0], store, spec, False, 2)
    assert [block is store.null_block for block in row] == null
    assert all(block in (store.null_block, store.present) for block in row)
