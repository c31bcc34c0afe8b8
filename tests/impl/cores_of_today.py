"""Cores of today for tests, and requests made for them."""

from types import SimpleNamespace
from typing import Any

from blockproof import impl
from blockproof.impl import today

impl.init_none_hash(impl.sha256)
FLOAT: Any = SimpleNamespace(itemsize=4)
CHECKPOINT: dict[str, Any] = {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 4}


def full(size=4):
    return impl.FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=FLOAT)


def window(size=4, width=5):
    return impl.SlidingWindowSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=FLOAT, sliding_window=width)


def states(size=8, **more):
    return today.MambaSpec(block_size=size, shapes=((1,),), dtypes=(FLOAT,), mamba_cache_mode="align", **more)


class Core:
    """A core, with requests made for it."""

    def __init__(self, *specs, blocks=20, unit=4, scheduler=None, ahead=0, retention=None, flagged=False, **named):
        groups = [impl.KVCacheGroupSpec([f"layer.{i}"], spec, flagged) for i, spec in enumerate(specs)]
        config = today.KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups, prefix_cache_retention_interval=retention
        )
        scheduler = scheduler or max(spec.block_size for spec in specs)
        self.manager = today.KVCacheManager(
            config, 128, scheduler, unit, num_hash_lookahead_tokens=ahead, log_stats=True, **named
        )
        self.pool = self.manager.block_pool
        self.hasher = today.get_request_block_hasher(unit, impl.sha256, ahead)

    def request(self, name, tokens, **fields):
        request = today.Request(name, list(tokens), block_hasher=self.hasher)
        for field, value in fields.items():
            setattr(request, field, value)
        return request

    def step(self, request, count, **named):
        """Allocate a step, and let it run."""
        new = self.manager.allocate_slots(request, count, **named)
        if new is not None:
            request.num_computed_tokens += count + named.get("num_new_computed_tokens", 0)
            request.num_computed_tokens += named.get("num_external_computed_tokens", 0)
            request.status = today.RequestStatus.RUNNING
            _, held = self.manager.take_kv_cache_block_copies()
            self.pool.free_blocks(held)
        self.manager.check()
        return new

    def admit(self, request, count, **named):
        """Look it up, and allocate its first step behind the hit. Returns the tokens of the hit."""
        hit, tokens, boundary = self.manager.get_computed_blocks(request)
        request.shared_prefix_boundary = boundary
        self.step(request, count, num_new_computed_tokens=tokens, new_computed_blocks=hit, **named)
        return tokens


def fine(**more):
    """Full attention with states of two of its blocks."""
    return Core(full(8), states(8, **more), unit=4, scheduler=8, blocks=30)
