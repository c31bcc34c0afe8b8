"""A release's own scheduler with its pool, built for an engine that needs neither a model nor a GPU.

Works in the Python environment of the release.
"""

import sys
from types import SimpleNamespace
from typing import Any

from .....model.arith import cdiv
from .....model.ops import Item
from ....simulation.protocol import ClientRequest
from ..binding import RETENTION_VARIABLE, environment
from .scheduler_config import RETENTION_FIELD, Setup, configuration, make, module, spec_of

_ENCODER_TOKENS = 1 << 20
"""Room for the outputs of encoders, which is no question here."""


class BuiltScheduler:
    """The scheduler of one engine, and what it was built from."""

    def __init__(self, setup: Setup) -> None:
        """NotImplementedError if the release has no such engine."""
        self.setup = setup
        interface = module("v1.kv_cache_interface")
        groups = [
            make(
                interface.KVCacheGroupSpec,
                layer_names=[f"layer.{index}"],
                kv_cache_spec=spec_of(group),
                is_eagle_group=group.eagle,
            )
            for index, group in enumerate(setup.shape.groups)
        ]
        self.config = configuration(setup)
        self.cache_config = make(
            interface.KVCacheConfig,
            num_blocks=setup.shape.num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=groups,
            prefix_cache_retention_interval=getattr(self.config.cache_config, RETENTION_FIELD, None),
        )
        self._adapters: dict[tuple[str, int], int] = {}
        self.build()

    def build(self) -> None:
        """Make the scheduler and its pool from `config` and `cache_config`; again if a connector has changed these."""
        if self.setup.asynchronous:
            kind = module("v1.core.sched.async_scheduler").AsyncScheduler
        else:
            kind = module("v1.core.sched.scheduler").Scheduler
        self.scheduler_block_size, self.hash_block_size = self._block_sizes()
        text_only = SimpleNamespace(supports_multimodal_inputs=lambda model: False)
        with environment(RETENTION_VARIABLE, self.setup.retention):
            self.scheduler = make(
                kind,
                vllm_config=self.config,
                kv_cache_config=self.cache_config,
                structured_output_manager=_Unstructured(),
                block_size=self.scheduler_block_size,
                hash_block_size=self.hash_block_size,
                mm_registry=text_only,
            )
        self.pool = self.scheduler.kv_cache_manager.block_pool
        encoders = module("v1.core.encoder_cache_manager")
        self.scheduler.max_num_encoder_input_tokens = _ENCODER_TOKENS
        self.scheduler.encoder_cache_manager = encoders.EncoderCacheManager(cache_size=_ENCODER_TOKENS)
        utils, hashing = module("v1.core.kv_cache_utils"), module("utils.hashing")
        utils.init_none_hash(hashing.sha256)
        ahead = getattr(self.scheduler, "num_hash_lookahead_tokens", 0)
        self._hasher = utils.get_request_block_hasher(self.hash_block_size, hashing.sha256, *([ahead] if ahead else []))

    def _block_sizes(self) -> tuple[int, int]:
        """Scheduler and hash block size in tokens, as the release computes them; the cache's block size in releases
        without such a function."""
        resolve = getattr(module("v1.core.kv_cache_utils"), "resolve_kv_cache_block_sizes", None)
        if resolve is None:
            return self.config.cache_config.block_size, self.config.cache_config.block_size
        scheduler_block, hash_block = resolve(self.cache_config, self.config)
        return scheduler_block, hash_block

    @property
    def managers(self) -> list[Any]:
        """The manager of each group."""
        return list(self.scheduler.kv_cache_manager.coordinator.single_type_managers)

    @property
    def room(self) -> int:
        """Free blocks beyond those that one request of the greatest length needs, by the release's own figures: its
        start-up check refuses a pool that has fewer than none."""
        specs = [group.kv_cache_spec for group in self.scheduler.kv_cache_config.kv_cache_groups]
        need = sum(cdiv(spec.max_memory_usage_bytes(self.config), spec.page_size_bytes) for spec in specs)
        return int(self.pool.get_num_free_blocks() - need)

    def request(self, request: ClientRequest, name: str, in_place: bool) -> Any:
        """What the scheduler is given for it; `name`: under which it knows it; `in_place`: all versions of an adapter
        have one path."""
        return make(
            module("v1.request").Request,
            request_id=name,
            prompt_token_ids=list(request.prompt),
            sampling_params=module("sampling_params").SamplingParams(
                max_tokens=request.max_tokens, ignore_eos=True, stop_token_ids=list(request.stop)
            ),
            pooling_params=None,
            eos_token_id=None,
            mm_features=[_feature(item) for item in request.items] or None,
            lora_request=self._adapter(request, in_place),
            priority=request.priority,
            cache_salt=None if request.salt is None else sys.intern(request.salt),
            block_hasher=self._hasher,
        )

    def _adapter(self, request: ClientRequest, in_place: bool) -> Any:
        """The engine gives an adapter a new number whenever it is loaded; each version has its own path unless it was
        changed in place."""
        name, version = request.adapter, request.adapter_version
        if name is None:
            return None
        number = self._adapters.setdefault((name, version), len(self._adapters) + 1)
        place = "/adapter" if in_place else f"/adapter/{version}"
        return module("lora.request").LoRARequest(sys.intern(name), number, place)


def _feature(item: Item) -> Any:
    inputs = module("multimodal.inputs")
    return make(
        inputs.MultiModalFeatureSpec,
        data=None,
        modality="image",
        identifier=sys.intern(item.identifier),
        mm_position=inputs.PlaceholderRange(offset=item.offset, length=item.length),
        mm_hash=item.identifier,
    )


class _Unstructured:
    """Stand-in for the manager of structured output; no request here uses any."""

    def should_advance(self, request: Any, **_: object) -> bool:
        """Always False."""
        return False

    def accept_tokens(self, request: Any, *tokens: object) -> bool:
        """Always True."""
        return True

    def validate_tokens(self, request: Any, tokens: list[int], *_: object) -> list[int]:
        """All tokens are valid."""
        return tokens

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"the scheduler asks for {name!r} of structured output, which no request here uses")
