"""Windows with a gap and rings, judged without a model: a right core shows nothing, a wrong one is found."""

from dataclasses import replace

import pytest
from blockproof.fuzz.adapters.vllm.releases import release_of
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.kinds import HYBRIDS_OF_FEW, HYBRIDS_OF_POOLS, OF_FEW
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.targets.base import left_out_for
from blockproof.fuzz.targets.declarations import KINDS_OF_FEW, SEVERAL_NAMES
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.workload.bounds import keeps_states_of
from blockproof.fuzz.workload.shapes import ATTENTION, EVERY_ATTENTION, possible_attention
from blockproof.model.core import Model
from blockproof.model.features.today import TODAY
from blockproof.model.kinds.rswa import has_gap, null_unread
from blockproof.model.ops import DONE, NULL, Advance, Allocate, Group, Shape, Submit

FEW = tuple(name for name, kinds in EVERY_ATTENTION.items() if name not in ATTENTION and kinds not in HYBRIDS_OF_POOLS)
STATELESS = tuple(name for name in FEW if not keeps_states_of(EVERY_ATTENTION[name]))
"""Those without states, of which the rule of today by itself is not clean, whatever else is there."""


class Core:
    """A core that is the model by the rule of today, maybe with one decision replaced."""

    name = "core with rare kinds"
    offers = KINDS_OF_FEW | {"Arrive.missing"}
    hides = frozenset({SEVERAL_NAMES})
    lacks = release_of("0.33.0").lacks

    def __init__(self, model=Model, **decisions):
        self._made, self._policy = model, replace(TODAY, **decisions)

    def start(self, shape):
        self._model = self._made(shape, self._policy)
        built = self._model.construction
        return built, self._model.snapshot() if built == DONE else None

    def step(self, operation):
        return self._model.step(operation)

    @property
    def copies(self):
        return self._model.copied

    def close(self):
        pass


def found(core, attention, oracle, operations=6_000):
    """What came up, if anything did."""
    summary = Summary(core.name, "random", 4)
    run_random(core, Plan(4, operations=operations, attention=attention, oracles=oracle, shrink_seconds=0.1), summary)
    return summary


def test_they_are_drawn_only_for_who_offers_them():
    assert (*OF_FEW, *("+".join(kinds) for kinds in HYBRIDS_OF_FEW)) == FEW
    assert {*FEW} <= {*possible_attention(tuple(EVERY_ATTENTION), left_out_for(Core()))}

    class Others(Core):
        offers = frozenset({"Arrive.missing"})

    lacks = left_out_for(Others())
    assert possible_attention(tuple(EVERY_ATTENTION), lacks) == possible_attention(tuple(ATTENTION), lacks)


@pytest.mark.parametrize("oracles", [("shadow",), ("contract",), ("liveness",)], ids="+".join)
def test_a_right_core_shows_nothing(oracles):
    summary = found(Core(), STATELESS, oracles)
    assert summary.finding is None, summary.finding
    assert oracles != ("shadow",) or summary.reached["shadow: rings read back"] > 100


def too_early(core, group, name, settled):
    """The gap takes the whole window."""
    rule = core.rules[group]
    null_unread(core, group, name, settled + (rule.w - 1 if has_gap(rule) else 0))


def never(core, group, name, settled):
    """Nothing of the gap is given back."""
    if not has_gap(core.rules[group]):
        null_unread(core, group, name, settled)


def ring_given_up(core, group, name, settled):
    """A ring is given back while its request goes on, as if it were a window."""
    table = core.state.tables[group].get(name, [])
    if core.rules[group].scratch and settled > 2 and table:
        gone, table[:] = table[:1], [NULL]
        core.state.let_go(gone)
    else:
        null_unread(core, group, name, settled)


class SharedRing(Model):
    """A request gets the ring of another one."""

    def grow(self, group, table, count, listed=True):
        others = [other for other in self.state.tables[group].values() if other]
        if self.rules[group].scratch and count and others:
            table += others[0][:1]
        else:
            super().grow(group, table, count, listed)


@pytest.mark.parametrize(
    ("core", "attention", "oracle", "seen"),
    [
        (Core(also_named=None), "rswa", "shadow", "corruption"),
        (Core(also_named=None), "full+rswa", "shadow", "corruption"),
        (Core(also_named=None), "rswa", "contract", "S7"),
        (Core(null_skipped=too_early), "rswa", "shadow", "corruption"),
        (Core(null_skipped=too_early), "rswa", "contract", "S6"),
        (Core(null_skipped=ring_given_up), "full+ring", "shadow", "corruption"),
        (Core(SharedRing), "full+ring", "shadow", "corruption"),
        (Core(SharedRing), "mamba+ring", "contract", "S2"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_wrong_core_is_found(core, attention, oracle, seen):
    finding = found(core, (attention,), (oracle,)).finding
    assert finding is not None
    assert finding.observable == seen


@pytest.mark.parametrize(("core", "seen"), [(Core(), None), (Core(null_skipped=never), "S17")])
def test_a_gap_that_is_kept_is_found_once_it_has_grown(core, seen):
    steps = [one for token in range(12) for one in (Advance("a", sampled=(token,)), Allocate("a", 1))]
    shape = Shape((Group("rswa", 2, window=2),), 20, 24, 2, 2, 24)
    trace = Trace(shape, (Submit("a", (1, 2, 3)), Allocate("a", 3), *steps))
    finding, _ = replay(trace, core, Judging(("contract",)))
    assert (finding and finding.observable) == seen
