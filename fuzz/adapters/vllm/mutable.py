"""Which modules of the reference release random mutants change, and what its own tests find of such mutants."""

from importlib.resources import files

from ...targets.family import Mutable
from .binding import bind_vllm

_CORE = "vllm.v1.core."
SURVIVORS = {"survivors.toml": "vllm==0.23.0", "survivors_0330.toml": "vllm==0.33.0"}
"""Files of mutants that nothing finds, each with the release in which their lines stand."""
MUTABLE = Mutable(
    modules=(
        f"{_CORE}kv_cache_manager",
        f"{_CORE}kv_cache_coordinator",
        f"{_CORE}block_pool",
        f"{_CORE}single_type_kv_cache_manager",
        f"{_CORE}kv_cache_utils",
        f"{_CORE}kv_cache_metrics",
        f"{_CORE}kv_cache_planning",
        "vllm.v1.kv_cache_interface",
        "vllm.v1.kv_cache_spec_registry",
    ),
    package="vllm",
    forget=bind_vllm.cache_clear,
    own_tests={
        f"{_CORE}kv_cache_manager": (7, 7),
        f"{_CORE}kv_cache_coordinator": (9, 10),
        f"{_CORE}block_pool": (14, 19),
        f"{_CORE}single_type_kv_cache_manager": (26, 39),
        f"{_CORE}kv_cache_utils": (43, 65),
        "vllm.v1.kv_cache_interface": (4, 18),
    },
    survivors="\n".join((files(__package__) / name).read_text(encoding="utf-8") for name in SURVIVORS),
)
"""The figures of the release's own tests (325 in its core suite, on a CPU) are of one set of 160 mutants, of which
these tests found 105; the two modules that are not named had the other two, both found."""
