"""A release's rules: an entry stands in the place of a rule, and what it changes is put down to it, and to it alone."""

from typing import Any

import pytest
from blockproof.fuzz.targets.configuration_answers import answer
from blockproof.fuzz.targets.released_rules import ReleasedRule, ReleasedRules
from blockproof.model.config.capacity import Rules

SPEC = {"type": "FullAttentionSpec", "block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype": {"itemsize": 2}}
PAGE = ("page", {"spec": SPEC})
MEMORY = ("max_memory", {"spec": SPEC, "vllm_config": {}, "max_model_lens": [16]})
CAP = ("admission_cap", {"spec": {**SPEC, "type": "SlidingWindowSpec", "sliding_window": 4}, "draws": [[8, 99]]})


def model_of(spec, available_memory, **settings):
    layers = {"specs": {"s": spec}, "layers": [["l", "s"]], "vllm_config": settings}
    return {**layers, "available_memory": available_memory}


def one_byte_more(r, x):
    return Rules.real_page(r, x) + 1


def one_byte_less(r, x):
    return Rules.page(r, x) - 1


def one_block_more(r, config, x):
    return Rules.blocks(r, config, x) + 1


def asked(question, *entries) -> tuple[Any, set[str]]:
    rules = ReleasedRules(entries)
    return rules.answer(*question), rules.fired


def test_an_entry_is_called_wherever_the_rule_was():
    page, fired = asked(PAGE, ReleasedRule("real_page", one_byte_more, "more"))
    right: Any = answer(*PAGE)
    assert page["output"]["page_size_bytes"] == right["output"]["page_size_bytes"] + 1
    assert fired == {"more"}
    memory, fired = asked(
        MEMORY, ReleasedRule("real_page", one_byte_more, "more"), ReleasedRule("blocks", one_block_more, "blocks")
    )
    assert memory == {"output": [2 * (512 + 1)]}
    assert fired == {"more", "blocks"}


def test_an_entry_that_does_what_the_rule_does_is_no_deviation():
    same, fired = asked(PAGE, ReleasedRule("page", Rules.page, "none"))
    assert (same, fired) == (answer(*PAGE), set())


def test_what_does_not_change_the_answer_is_seen_but_does_not_count():
    both = [ReleasedRule("real_page", one_byte_more, "more"), ReleasedRule("page", one_byte_less, "less")]
    rules = ReleasedRules(both)
    assert rules.answer(*MEMORY) == answer(*MEMORY)
    assert (rules.seen, rules.fired) == ({"more", "less"}, set())
    assert rules.answer(*CAP) == answer(*CAP)
    assert rules.seen == set()


def test_where_each_alone_makes_the_difference_all_that_occurred_count():
    just_enough = model_of(SPEC, max_model_len=16, available_memory=1024)
    both = (ReleasedRule("blocks", one_block_more, "blocks"), ReleasedRule("real_page", one_byte_more, "more"))
    for entries in (both, both[:1], both[1:]):
        answered, fired = asked(("check_memory", just_enough), *entries)
        assert answered == {"raises": "ValueError"}
        assert fired == {entry.deviation for entry in entries}
    assert answer("check_memory", just_enough) == {"output": None}


def test_a_deviation_is_named_by_what_it_did():
    name = lambda r, wanted, found, x: f"{found - wanted} more"  # noqa: E731
    assert asked(PAGE, ReleasedRule("real_page", one_byte_more, name))[1] == {"1 more"}


def test_only_a_rule_can_be_replaced():
    with pytest.raises(TypeError, match="'pages_' is no rule"):
        Rules(pages_=one_byte_more)
