"""The adapter of vLLM, and of every core that has its KV-cache API."""

from functools import partial
from importlib.resources import files

from ...targets.base import Calculator, Target
from ...targets.family import Family, Known, Mutable, OwnTests
from .releases import BETWEEN, KNOWN, REFERENCE


def _open_target() -> Target:
    from .binding import bind_vllm
    from .style import VllmStyleTarget

    binding = bind_vllm()
    return VllmStyleTarget(FAMILY.spec(binding.version), binding)


def _open_calculator() -> Calculator:
    from .binding import bind_vllm
    from .configuration.core_calculator import CoreCalculator

    binding = bind_vllm()
    return CoreCalculator(FAMILY.spec(binding.version), binding)


def _open_engine() -> object:
    from .engine.simulated import VllmSimulated

    return VllmSimulated()


def _open_nixl_pair() -> object:
    from .pairs.nixl_pair import NixlPair

    return NixlPair()


def _open_nixl_push_pair() -> object:
    from .pairs.nixl_push import NixlPushPair

    return NixlPushPair()


def _open_mooncake_pair() -> object:
    from .pairs.mooncake_pair import MooncakePair

    return MooncakePair()


def _open_moriio_pair() -> object:
    from .pairs.moriio_pair import MoriioPair

    return MoriioPair()


def _open_moriio_write_pair() -> object:
    from .pairs.moriio_write import MoriioWritePair

    return MoriioWritePair()


def _known() -> Known:
    from .configuration.configuration_deviations import CONFIGURATION_DEVIATIONS, Reference0230
    from .deviations.deviations_0230 import DEVIATIONS, ELSEWHERE, policy_of
    from .deviations.misuse import reaction_to

    return Known(DEVIATIONS, policy_of, CONFIGURATION_DEVIATIONS, Reference0230, ELSEWHERE, reaction_to=reaction_to)


def _known_0330() -> Known:
    from .configuration.configuration_0330 import CONFIGURATION_DEVIATIONS, Reference0330
    from .deviations.deviations_0330 import DEVIATIONS, policy_of
    from .deviations.misuse import reaction_0330

    return Known(
        DEVIATIONS,
        policy_of,
        CONFIGURATION_DEVIATIONS,
        Reference0330,
        traces="docs/evidence/today-deviations",
        reaction_to=reaction_0330,
    )


def _known_between(version: str) -> Known:
    from .deviations.deviations_between import deviations_of, policy_of
    from .deviations.misuse import reaction_0260, reaction_0330
    from .releases import minor

    reaction = reaction_0330 if minor(version) >= (0, 31) else reaction_0260
    traces = "docs/evidence/between-deviations"  # of those that neither 0.23.0 nor 0.33.0 has
    return Known(deviations_of(version), partial(policy_of, version), traces=traces, reaction_to=reaction)


def _own_tests(version: str) -> OwnTests:
    from .own_tests import own_tests_of

    return own_tests_of(version)


def _mutable() -> Mutable:
    from .mutable import MUTABLE

    return MUTABLE


FAMILY = Family(
    name="vllm",
    open_target=_open_target,
    open_calculator=_open_calculator,
    open_engine=_open_engine,
    pairs={
        "nixl": _open_nixl_pair,
        "nixl-push": _open_nixl_push_pair,
        "mooncake": _open_mooncake_pair,
        "moriio": _open_moriio_pair,
        "moriio-write": _open_moriio_write_pair,
    },
    requirements=(files(__package__) / "requirements.txt").read_text(),
    releases=KNOWN,
    reference=REFERENCE,
    scheduler=f"{__name__}.engine.cases",
    exact={
        REFERENCE: _known,
        **{version: partial(_known_between, version) for version in BETWEEN},
        "0.33.0": _known_0330,
    },
    replaced={REFERENCE: "impl", "0.33.0": "impl-today"},
    own_tests=_own_tests,
    mutable=_mutable,
    mixes=f"{__name__}.engine.scheduler_mixes",
    new_patch={
        "{module}.py": (files(__package__) / "new_patch.py.txt").read_text(),
        "test_{module}.py": (files(__package__) / "new_patch_test.py.txt").read_text(),
    },
    environment={"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"},
)
