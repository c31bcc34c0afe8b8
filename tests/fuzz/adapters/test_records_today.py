"""Questions that only cores of today are asked: what is right by definition, and that each can find something."""

import json

import pytest
from blockproof.fuzz.adapters.vllm.configuration.configuration_0330 import Reference0330
from blockproof.fuzz.adapters.vllm.configuration.records_today import Record
from blockproof.fuzz.configuration.check import Judge
from blockproof.fuzz.configuration.draw import Configuration
from blockproof.fuzz.configuration.today import LEAST, MADE, VARIED
from blockproof.fuzz.workload.draw import SeededDraw

NAME = "vllm==0.33.0"
NOTHING = Configuration({}, (), {}, ())
FULL = {"type": "FullAttentionSpec", **LEAST["FullAttentionSpec"]}
WINDOW = {"type": "SlidingWindowSpec", **LEAST["SlidingWindowSpec"]}
STATES = {"type": "MambaSpec", **LEAST["MambaSpec"], "mamba_cache_mode": "align"}
RING = {"type": "CircularBufferSpec", **LEAST["CircularBufferSpec"]}


def right(op, **inputs):
    answer = Reference0330().right(op, inputs)
    return answer.get("output", answer)


class Spoiled:
    """Answers as the release does, but for one place of an answer: the number of it comes from the question."""

    name = NAME

    def __init__(self, place):
        self._place, self._reference = place, Reference0330()

    def ask(self, op, inputs):
        answer = json.loads(json.dumps(self._reference.answer(op, inputs)))
        leaves = list(_leaves(answer, ()))
        *way, last = leaves[self._place % len(leaves)]
        inner = answer
        for step in way:
            inner = inner[step]
        inner[last] = "odd"
        return answer

    def close(self):
        pass


def _leaves(value, way):
    if isinstance(value, dict | list) and value:
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(part, (*way, name))
    else:
        yield way


@pytest.mark.parametrize("op", MADE)
def test_any_other_answer_is_found(op):
    for number in range(12):
        asked, inputs = MADE[op](SeededDraw(f"{op}/{number}"), NOTHING)
        assert asked == op
        assert Judge(Spoiled(0)).check_question(op, inputs) is not None
        found = Judge(Spoiled(number)).check_question(op, inputs)
        assert found is not None
        assert found.op == op


def test_every_field_of_today_is_drawn_and_may_be_left_out():
    drawn = set()
    for number in range(600):
        _, inputs = MADE["merge_records"](SeededDraw(f"field/{number}"), NOTHING)
        specs = inputs["specs"]
        assert isinstance(specs, list)
        drawn |= {(spec["type"], field) for spec in specs for field in spec}
    assert {(name, field) for name, fields in VARIED.items() for field in fields} <= drawn


def test_a_spec_says_what_follows_from_its_fields():
    about = {"vllm_config": {"max_model_len": 100, "max_num_batched_tokens": 7, "mamba_cache_mode": "align"}}
    window = right("record", spec={**WINDOW, "extra_retained_tokens": 2}, lengths=[33], **about)
    assert window["retained"] == 6
    assert window["rows"] == [3]
    assert window["need"] == 512 * 2  # 13 tokens, and a block that the window begins in
    ring = right("record", spec=RING, lengths=[33], **about)
    assert (ring["cacheable"], ring["slots"], ring["rows"], ring["need"]) == (False, False, [1], 512)
    states = right("record", spec={**STATES, "num_prefill_checkpoint_blocks": 1}, lengths=[33], **about)
    assert (states["rows"], states["need"], states["table_alignment"]) == ([3], 3 * 32, None)
    pooled = right("record", spec={**FULL, "tokens_per_state": [1, 2]}, lengths=[1], **about)
    assert pooled["states"] == 32
    parts = right("record", spec={**FULL, "block_stride_alignment": {"multiple_of": 8}}, lengths=[1], **about)
    assert parts["stride"] == 256


def test_what_holds_of_one_layer_holds_of_the_group_and_all_else_must_agree():
    causal = right("merge_records", specs=[FULL, {**FULL, "non_causal": True}])
    assert causal["non_causal"] is True
    assert right("merge_records", specs=[FULL, {**FULL, "max_tp_shards": 2}]) == {"raises": "AssertionError"}
    rswa = {"type": "RSWASpec", **LEAST["RSWASpec"]}
    assert right("merge_records", specs=[rswa, {**rswa, "rswa_window": 7}]) == {"raises": "AssertionError"}
    assert right("merge_records", specs=[rswa, rswa])["rswa_window"] == 5


def test_hits_end_inside_states_where_everything_can_be_looked_up_there():
    about = {"scheduler_block_size": 32, "hash_block_size": 8, "ranks": 4}
    cached = {"enable_prefix_caching": True}
    assert right("hits_end", groups=[FULL, STATES], vllm_config=cached, **about)["every"] == 8
    assert right("hits_end", groups=[FULL, STATES, WINDOW], vllm_config=cached, **about)["every"] == 32
    shared = [{**FULL, "max_tp_shards": 2}]
    assert right("hits_end", groups=shared, vllm_config=cached, **about)["alike"] == 2


def test_a_worker_sees_a_block_as_parts_only_where_nothing_lies_between():
    about = {"spec": FULL, "layers": 2, "num_blocks": 3, "kernel_block_size": 8, "offset": 64}
    first, second = right("views", layout="LBNHC", wider=0, **about)
    assert first == [[6, 1, 8, 16], [128, 16, 16, 1], 32, [3, 2, 1, 8, 16]]
    assert second[2] - first[2] == 3 * Record(FULL).page // 2
    assert right("views", layout="BLNHC", wider=0, **about) == {"raises": "ValueError"}


def test_blocks_begin_at_multiples_of_what_the_spec_says():
    spec = {**FULL, "block_stride_alignment": 768}
    about = {"spec": spec, "last": spec, "groups": [2, 1], "available_memory": 1 << 16}
    assert right("placed", layout="LBNHC", **about)["tensors"][0][3] == 768
    assert right("placed", layout="BLHNC", **about)["tensors"][1][3] == 1536
    odd = {**FULL, "block_stride_alignment": 1000, "num_head_slots": 4}
    assert right("placed", layout="LHBNC", **{**about, "spec": odd, "last": odd}) == {"raises": "AssertionError"}


@pytest.mark.parametrize(("layout", "able"), [("BLHNC", True), ("LBNHC", False), ("LHBNC", False), ("BHLNC", False)])
def test_pages_of_two_sizes_lie_side_by_side_in_a_block_or_nowhere(layout, able):
    about = {"spec": FULL, "last": {**FULL, "block_size": 64}, "available_memory": 1 << 16}
    two = right("placed", groups=[2, 1], layout=layout, **about)
    assert two == ({"raises": "ValueError"} if not able else two)
    if able:  # the larger page decides
        assert [tensor[3] for tensor in two["tensors"]] == [4 * Record(FULL).page] * 2
    assert "tensors" in right("placed", groups=[2], layout=layout, **about)


def test_who_names_blocks_elsewhere_is_told_the_seed():
    assert right("none_hash", seed="7", tokens=[1], parents=[])["told"] == "7"
    unset = right("none_hash", seed=None, tokens=[1], parents=[])
    assert len(unset["told"]) == unset["none_hash"]["bytes"]


def test_a_connector_is_handed_groups_and_finds_only_those_by_name_that_have_one():
    groups = [
        {"layers": ["a"], "spec": FULL, "host": True, "handed_over": True},
        {"layers": ["b"], "spec": RING, "host": False, "handed_over": True},
        {"layers": ["c"], "spec": WINDOW, "host": False, "handed_over": False},
    ]
    shown = right("handed_over", groups=groups, rows=[[1], [2], [3]], num_blocks=9, host_blocks=5)
    assert (shown["groups"], shown["stored"], shown["host"], shown["rows"]) == ([0, 1], [0], [0], [[1], [2]])
    assert shown["blocks"] == [9, 5]


def test_one_block_of_each_pool_is_nobody_s():
    groups = [{"layers": ["a"], "spec": FULL, "host": False, "handed_over": True}]
    config = {"max_model_len": 64, "max_num_batched_tokens": 7}
    reference = Reference0330()
    inputs = {"groups": groups, "vllm_config": config, "num_blocks": 9, "host_blocks": 3}
    assert reference.right("room", inputs) == {"output": {"room": [128, 2.0], "kept": [128, 2.0]}}
    assert reference.answer("room", inputs) == {"output": {"room": [144, 2.25], "kept": [144, 2.25]}}
    assert reference.fired == {"C-17"}


@pytest.mark.parametrize(
    ("last", "kept"),
    [(None, [False, True, False, True]), (5, [False, True, False, True]), (3, [False, True, True, True])],
)
def test_who_stores_blocks_ahead_keeps_the_end_of_the_prompt_too(last, kept):
    stretch = {"start": 0, "end": 4, "unit": 32, "interval": None, "resumed": [], "eagle": False, "last": last}
    assert right("kept", spec=WINDOW, **stretch) == kept
