"""Two lower tiers, one below the other: an engine that is right, and found with any mistake between the two."""

from pathlib import Path

import pytest
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.opening.engines import open_engine_here
from blockproof.fuzz.simulation.judges import TIER

from .radix_mistakes import Mistake
from .test_scheduler_engine import found_in

ENGINE = Path(__file__).parent / "two_level_engine.py"

LOST = "a whole block of who has left is not stored, and there is room"
MISTAKES = (
    Mistake(
        "place N is moved, and no tier holds what was there",  # what comes up is not entered
        '                self.host.tell("stored", place)\n                self.host.at[key] = place\n',
        '                self.host.tell("released", place)\n                self.host.free.append(place)\n',
    ),
    Mistake(
        LOST,  # some of what leaves the host is dropped
        "            if not disk.free:\n",
        "            if self.number % 3 == 0:\n"
        '                host.leave("evicted", key)\n'
        "                return host.free.pop()\n"
        "            if not disk.free:\n",
    ),
    Mistake(
        LOST,  # another block goes down than the one whose key does
        'self.move("store", host.at[key], "disk", place, "host")',
        'self.move("store", [*host.at.values()][1], "disk", place, "host")',
    ),
    Mistake(
        "what is stored at place N, from where nobody has evicted it, is not found",  # its key is lost
        '            disk.tell("stored", place)\n            disk.at[key] = place\n',
        '            disk.tell("stored", place)\n            disk.at[key if place else (place,)] = place\n',
    ),
    Mistake("place N is moved while it is pinned", "                self.disk.pin(key, -1)\n", ""),
    Mistake(
        "place N is unpinned more often than it was pinned",
        "                self.disk.pin(key, -1)\n",
        "                self.disk.pin(key, -1)\n                self.disk.pin(key, -1)\n",
    ),
    Mistake(
        "place N counts as stored, and holds what nobody wrote",  # a place is read that is free
        'self.move("load", place, "disk", self.disk.at[key], "host")',
        'self.move("load", place, "disk", [self.disk.at[key], *self.disk.free][-1], "host")',
    ),
    Mistake(
        "N blocks are evicted, and nothing needs their places",
        "        if not host.free:\n",
        "        if len(host.free) < 2 and host.at:\n",
    ),
)
"""By what is found."""


def found_with(path, steps):
    return found_in(SimulatedFamily(open_engine_here(f"{path}:make_engine")), 1, steps)


def test_with_two_tiers_it_is_right():
    found, reached = found_with(ENGINE, 8_000)
    assert found == []
    for name in ("tier: looked", "tier: moved", "tier: evicted", "tier blocks loaded"):
        assert reached[name] > 50, name


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_found(mistake, tmp_path):
    source = ENGINE.read_text(encoding="utf-8")
    assert source.count(mistake.old) == 1
    changed = tmp_path / "changed.py"
    changed.write_text(source.replace(mistake.old, mistake.new), encoding="utf-8")
    found, _ = found_with(changed, 8_000)
    assert [(one.judge, one.rule) for one in found] == [(TIER, mistake.what)]
