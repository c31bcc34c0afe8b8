"""SGLang's memory on the host under simulation: skipped where neither it nor an environment with it is installed."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.sglang.host_copies import Copies
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.child import environment_of

from .released import place_of

NAME = families()["sglang"].example
HERE = Path(__file__).parent
SEEN_BY = {
    "loses keys": "tier",
    "frees twice": "tier",
    "loads before it is stored": "tier",
    "waits for no load": "memory",
    "loads other places": "memory",
    "stores other slots": "tier",
    "evicts while loading": "tier",
    "stores nothing": "tier",
    "leaks places": "tier",
    "keeps what is old": "fate",
    "does not hear of the end of a load": "progress",
    "evicts without need": "tier",
    "drops what is reached": "tier",
    "is free while it is stored": "tier",
}
FOUND = """
import json, sys
sys.path.insert(0, sys.argv[1])
from sglang_host_faults import FAULTS, found
print(json.dumps({name: found(name, 3000) for name in FAULTS}))
"""


def moved():
    """A controller's copies: a store and a load that began."""
    slots = SimpleNamespace(tolist=lambda: [4, 5]), SimpleNamespace(tolist=lambda: [0, 1])
    pages = SimpleNamespace(device_indices=slots[0], host_indices=slots[1])
    controller: Any = SimpleNamespace(layer_done_counter=SimpleNamespace(producer_index=0, events=[None, None]))
    copies = Copies(controller)
    engine, event = controller.l2_transfer_engine, controller.layer_done_counter.events[0]
    store = engine.submit_device_to_host([pages]).finish_event
    load = engine.submit_host_to_device([pages], start_event=event.start_event).finish_event
    assert event.finish_event is load
    return copies, store, load


def test_a_store_is_over_when_the_device_says_so_and_a_load_before_the_step_that_waits_for_it():
    copies, store, load = moved()
    copies.waited_for(1, 0)
    told, awaited = copies.taken()
    assert [(one.kind, one.now, one.device, one.other) for one in told] == [
        ("store", False, (4, 5), (0, 1)),
        ("load", True, (4, 5), (0, 1)),
    ]
    assert awaited == ()
    assert not store.query()
    assert not load.query()
    copies.ended([store.id])
    copies.landed(1)
    assert store.query()
    assert load.query()


def test_what_nobody_waits_for_takes_its_time_and_what_is_waited_for_later_is_over_then():
    copies, store, load = moved()
    copies.waited_for(1, -1)
    told, _ = copies.taken()
    assert [one.now for one in told] == [False, False]
    copies.landed(1)
    assert not load.query()
    store.synchronize()
    assert store.query()
    assert copies.taken() == ((), (store.id,))


@pytest.mark.slow
def test_each_planted_mistake_is_found(tmp_path):
    place = place_of(NAME)
    environment = environment_of(place, tmp_path)
    command = [str(place.python), "-P", "-c", FOUND, str(HERE)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    found = json.loads(told.stdout.splitlines()[-1])
    assert {name: judge for name, (judge, _) in found.items()} == SEEN_BY


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
def test_its_known_defects_bear_their_names_and_nothing_else_is_found(tmp_path, capsys, policy):
    place_of(NAME)
    more = ["--attention", "full", "--option", f"hicache={policy}", "--steps", "1500", "--keep-going"]
    main(["simulate", "--target", NAME, "--seed", "1", "--out", str(tmp_path), "--shrink-seconds", "0", *more])
    said = capsys.readouterr().out
    assert "\nnew: " not in said
    if policy != "write_back":  # which copies only what it evicts: no pause has come upon that here
        assert "\ncopies-unheard-in-a-pause (" in said
    assert "  tier: reserved: " in said
