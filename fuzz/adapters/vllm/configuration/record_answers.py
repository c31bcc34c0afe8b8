"""Answers to the questions that only cores of today can be asked, by the rules of `records_today`, and what vLLM 0.33.0
answers instead."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .....model.attention import demand
from .....model.config.capacity import Rules
from .....model.config_json import Json
from .....model.identity import extra_keys
from .....model.ops import Item, Submit
from ....targets.configuration_question import ConstructedQuestion, attempt
from . import records_today as today
from .records_today import LATENT, LATENT_WINDOW, Raw, Record


class RecordRules(Rules):
    """Those of which a release is known to do otherwise."""

    def merge_records(self, specs: Sequence[Raw]) -> Json:
        """See `records_today`."""
        return today.merge_records(specs)

    def quantised(self, name: str) -> Json:
        """See `records_today`."""
        return today.quantised(name)

    def fit(self, groups: Sequence[Raw], config: Raw, pools: tuple[int, int]) -> Json:
        """The null block of either pool is nobody's."""
        return today.room(groups, config, (pools[0] - 1, pools[1] - 1))


def merge_0330(rules: Any, specs: Sequence[Raw]) -> Json:
    """Of latent windows only the layout is compared; of latent layers what is not causal is lost."""
    first = specs[0]
    if first["type"] == LATENT_WINDOW:
        compared = ("cache_dtype_str", "model_version", "sliding_window", *_COMPARED)
        demand(len({repr([x.get(name, today.UNSAID.get(name)) for name in compared]) for x in specs}) == 1)
        demand(len({today.said(x, "dcp_sharded") for x in specs}) == 1)
        return today.shown(first)
    if first["type"] == LATENT:
        specs = [{name: value for name, value in x.items() if name != "non_causal"} for x in specs]
    return today.merge_records(specs)


_COMPARED = (
    *("tokens_per_state", "extra_retained_tokens", "bounded_replay", "block_stride_alignment", "max_tp_shards"),
)


def name_merge_0330(rules: Any, wanted: object, found: object, specs: Sequence[Raw]) -> str:
    """Which deviation it is."""
    return "S-01" if specs[0]["type"] == LATENT_WINDOW else "S-03"


def room_0330(rules: Any, groups: Sequence[Raw], config: Raw, pools: tuple[int, int]) -> Json:
    """Null blocks count."""
    return today.room(groups, config, pools)


_NOTHING = (
    *("max_in_flight_tokens", "metrics_collector", "max_cache_hit_length", "num_prompt_tokens", "group_ids", "pool"),
    *("retention_interval", "final_segment_end_block", "role", "manager_classes", "alignment_tokens"),
    "kernel_block_size",
)
_NO = (
    *("use_eagle", "log_stats", "enable_kv_cache_events", "enable_mamba_shared_prefix_checkpoint", "allow_none"),
    *("apply_admission_cap", "replace_existing_hashes", "is_null", "needs_kv_cache_zeroing"),
    "supports_fine_grained_hash_lookup",
)
_NONE_OF_IT = (
    *("num_hash_lookahead_tokens", "num_prefill_lookahead", "watermark", "reserved_blocks", "prefill_end", "start"),
    *("num_encoder_tokens", "ref_cnt"),
)
LEFT_OUT: Mapping[str, Json] = {
    **dict.fromkeys(_NOTHING),
    **dict.fromkeys(_NO, False),
    **dict.fromkeys(_NONE_OF_IT, 0),
    **dict.fromkeys(("enable_caching", "has_scheduled_reqs", "record_for_zeroing", "allow_partial_hash_hits"), True),
    **dict.fromkeys(("dcp_world_size", "pcp_world_size", "dcp_size"), 1),
    "skip_zeroing_group_ids": [],
    "reachable_boundaries": [],
    "medium": "GPU",
}
"""What an argument is where a call leaves it out: the same in every call."""


def _rules(rules: Rules) -> RecordRules:
    assert isinstance(rules, RecordRules)
    return rules


def _quantised(rules: Rules, q: ConstructedQuestion) -> Json:
    mode = _rules(rules).quantised
    return [attempt(lambda name=name: mode(name)) for name in q.given.names]  # type: ignore[misc]


def quantised_0330(rules: Any, name: str) -> Json:
    """What a platform brings itself has the number of one that there is, so each is the other."""
    said = today.quantised(name)
    assert isinstance(said, list)
    return [*said[:-1], True] if said[0] == "OCTAVE_K3V4" else said


def _views(rules: Rules, q: ConstructedQuestion) -> Json:
    given = q.given
    place = {"layout": given.layout, "offset": given.offset, "wider": given.wider}
    return today.views(Record(given.spec), given.layers, given.num_blocks, given.kernel_block_size, place)


def _hits_end(rules: Rules, q: ConstructedQuestion) -> Json:
    sizes = q.given.scheduler_block_size, q.given.hash_block_size
    return today.hits_end(q.given.groups, q.given.vllm_config, sizes, q.given.ranks)


def _shown(tag: str, value: Any) -> Json:
    return list(value[:2]) if tag == "item" else str(value)


def _names_ahead(rules: Rules, q: ConstructedQuestion) -> Json:
    """Of each block that has a name its number, its tokens, what else it contains up to the last token that its name
    covers, and the tokens behind it that it covers."""
    size, ahead, length = q.given.block_size, q.given.ahead, sum(q.given.parts)
    submit = Submit("r", (), salt=q.given.salt, items=tuple(Item(*item) for item in q.given.items))
    told: list[Json] = []
    for start in range(0, length - size - ahead + 1, size):
        end = start + size
        keys = [_shown(tag, value) for tag, value in extra_keys(submit, start, end + ahead)]
        told.append([start // size, list(range(start, end)), keys, list(range(end, end + ahead))])
    return told


def _placed(rules: Rules, q: ConstructedQuestion) -> Json:
    first, last = Record(q.given.spec), Record(q.given.last)
    groups = [*((first, count) for count in q.given.groups[:-1]), (last, q.given.groups[-1])]
    return today.placed(groups, q.given.layout, q.given.available_memory)


def _handed_over(rules: Rules, q: ConstructedQuestion) -> Json:
    return today.handed_over(q.given.groups, q.given.rows, q.given.num_blocks, q.given.host_blocks)


RECORDS_TODAY: Mapping[str, Callable[[Rules, ConstructedQuestion], Json]] = {
    "record": lambda rules, q: today.record(q.given.spec, q.given.vllm_config, q.given.lengths),
    "merge_records": lambda rules, q: _rules(rules).merge_records(q.given.specs),
    "one_type": lambda rules, q: today.one_type(q.given.specs),
    "handed_over": _handed_over,
    "room": lambda rules, q: _rules(rules).fit(
        q.given.groups, q.given.vllm_config, (q.given.num_blocks, q.given.host_blocks)
    ),
    "hits_end": _hits_end,
    "views": _views,
    "placed": _placed,
    "kept": lambda rules, q: today.kept(Record(q.given.spec), vars(q.given)),
    "declared_groups": lambda rules, q: today.declared(q.given.names, q.given.declared, q.given.pools),
    "quantised": _quantised,
    "names_ahead": _names_ahead,
    "unsaid": lambda rules, q: [[LEFT_OUT[name] for name in arguments] for _, arguments in q.given.calls],
}
"""Answers by op."""
