"""Engines with several groups of layers, of every attention kind: right, and wrong where one group's table is wrong."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from blockproof.fuzz.simulation.faults import OneAtATime
from blockproof.fuzz.simulation.judges import MEMORY
from blockproof.fuzz.simulation.protocol import Delivered, ScheduledBatch, Slots
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.traffic import draw_simulation, facts_of
from blockproof.fuzz.workload.draw import SeededDraw

KINDS = ("full", "sliding", "chunked", "mla", "mamba", "full+sliding", "full+mamba", "full+sliding+mamba")


class Grouped(OneAtATime):
    """One request at a time, in pieces; each group of layers has blocks of its own."""

    attention: Sequence[str] = KINDS
    forgets = -1
    """The group whose first block is another one from the second step on."""

    def start(self, shape):
        super().start(shape)
        self._computed = 0

    def add(self, request):
        if self._blocks(len(request.prompt) + request.max_tokens) > self._shape.num_blocks:
            return (Delivered(request.id, ended="refused"),)
        return super().add(request)

    def _blocks(self, tokens):
        return sum(-(-tokens // group.block_size) for group in self._shape.groups)

    def cancel(self, id):
        if self._waiting[0].id == id:
            self._computed = 0
        super().cancel(id)

    def schedule(self):
        batch = super().schedule()
        if batch is None:
            return None
        (part,) = batch.parts
        known = part.first + part.count
        end = min(known, self._computed + self._shape.max_tokens)
        first, self._computed = self._computed, end
        tables, at = [], 0
        for number, group in enumerate(self._shape.groups):
            many = -(-end // group.block_size)
            table = [*range(at, at + many)]
            at += -(-(len(batch.own.prompt) + batch.own.max_tokens) // group.block_size)
            if number == self.forgets and first:
                table = [*table[1:], *table[:1]]
            tables.append(Slots(tuple(table)))
        part = replace(part, first=first, count=end - first, slots=tuple(tables), samples=end == known)
        return ScheduledBatch((part,), own=batch.own)

    def update(self, batch, results):
        if batch is not None and not results.tokens[batch.parts[0].request]:
            return ()
        if batch is not None and not any(batch.own is one for one in self._waiting):
            return ()
        told = super().update(batch, results)
        if told and told[0].ended:
            self._computed = 0
        return [self._stopped(batch.own, one) for one in told]

    def _stopped(self, request, one):
        if not one.ended and one.tokens[-1] in request.stop:
            self._waiting, self._got, self._computed = self._waiting[1:], [], 0
            return replace(one, ended="stop")
        return replace(one, ended="stop") if one.ended and one.tokens[-1] in request.stop else one


def runs(engine, many: int):
    facts = facts_of(engine)
    for number in range(many):
        run = SimulatedRun(engine, draw_simulation(SeededDraw(f"3/{number}"), facts))
        yield run, run.run(3000)


@pytest.mark.parametrize("kinds", KINDS)
def test_right_tables_are_right_in_every_kind(kinds):
    engine = Grouped()
    engine.attention = (kinds,)
    checked = 0
    for run, found in runs(engine, 12):
        assert found == [], (run.story.shape, found)
        checked += run.reached["reads checked"] + run.reached["states read"]
    assert checked > 200


@pytest.mark.parametrize(
    ("kinds", "group"), [(kinds, group) for kinds in KINDS for group in range(kinds.count("+") + 1)]
)
def test_a_wrong_table_of_any_group_is_found(kinds, group):
    engine = Grouped()
    engine.attention, engine.forgets = (kinds,), group
    found = [one for _, some in runs(engine, 12) for one in some]
    assert found
    assert {one.judge for one in found} == {MEMORY}
    assert any(f"group {group}, {kinds.split('+')[group]}" in one.what for one in found)
