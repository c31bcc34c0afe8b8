"""Hits of chunked attention against attention itself: sound where the block size divides the chunk, not elsewhere."""

from collections.abc import Iterator
from typing import Any

from blockproof.model.core import Model
from blockproof.model.ops import NULL, Allocate, Evict, Group, Lookup, Submit

from .running import core, done, runs, steps


def unsound_hits() -> Iterator[tuple[int, int]]:
    """Hits after which the next query reads a null entry: (chunk, block size)."""
    for model, workload, _ in runs(("chunked",), 60, kind=Model):
        rule = model.rules[0]
        for operation, _, outcome, _ in steps(model, workload):
            found: Any = outcome.value if isinstance(operation, Lookup) else None
            if found and found[0]:
                tokens, (row,) = found
                if any(row[t // rule.b] == NULL for t in range(tokens) if rule.attends(tokens, t)):
                    yield rule.k, rule.b


def test_a_hit_is_sound_where_the_block_size_divides_the_chunk():
    unsound = set(unsound_hits())
    assert not [(k, b) for k, b in unsound if k % b == 0]
    assert unsound, "the check finds nothing anywhere"


def test_a_chunk_that_starts_inside_a_block_can_give_a_hit_whose_next_query_reads_null_entries():
    """Open question to the specification: core.md §7 as written, and as released, against S7."""
    model = core(Group("chunked", 2, chunk=5), max_num_batched_tokens=32)
    prompt = tuple(range(10))
    done(model, Submit("a", prompt))
    done(model, Allocate("a", 10))
    table = model.state.tables[0]["a"]
    done(model, Evict(tuple(table)))
    done(model, Submit("b", prompt))
    tokens, rows = done(model, Lookup("b"))
    assert (tokens, rows) == (4, ((NULL, NULL),))
    assert [t for t in range(tokens) if model.rules[0].attends(tokens, t)] == [0, 1, 2, 3]
