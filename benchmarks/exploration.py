"""Explore every named scope, plant every fault, and write down what was visited and found.

python benchmarks/exploration.py [--write docs/evidence/exploration.md] [--scopes full,mamba]
python benchmarks/exploration.py --pin     # the counts that the tests compare with, in half a minute
"""

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap

from blockproof.fuzz.exploration import reductions
from blockproof.fuzz.exploration.faults import FAULTS, ONLY_THERE, by_property
from blockproof.fuzz.exploration.planting import ALONE, CROWDED, SMALL, STATES, STEPS, TINY, WINDOW
from blockproof.fuzz.exploration.properties import MEANING
from blockproof.fuzz.exploration.scope import Scope
from blockproof.fuzz.exploration.scopes import SCOPES, made_to_measure
from blockproof.fuzz.exploration.search import EXHAUSTED, Exploration, Limits, Search
from blockproof.fuzz.findings.words import operation_text, shape_text
from written import command, machine_lines, parser, put, table

wrapped = partial(wrap, width=110, break_on_hyphens=False)
PINNED = Path(__file__).parents[1] / "tests" / "fuzz" / "exploration" / "exploration_counts.json"
MOST_PINNED = 25_000
"""Scopes with more states are too large for the tests; this page has their counts."""
CHECKED = {
    "S1": "each transition that changes the pool",
    "S2": "each state with a block that is held more than once",
    "S4": "each state; each transition that changes the pool",
    "S5": "each transition that changes a table",
    "S6": "each state, for every request with computed tokens",
    "S7": "each lookup",
    "S8": "each refusal; each operation that fails",
    "S9": "each transition that changes the pool",
    "S10": "each transition that changes what is registered",
    "S11": "each transition with events or a change of what is registered",
    "S12": "each state at rest with a free name: `Free` of it is tried on both sides",
    "S15": "each allocation",
    "arrival": "each allocation whose tokens arrive later",
    "gate": "each allocation that the gate has let in",
    "quiet": "each submission, lookup, end and beginning of a step",
    "lockstep": "each transition",
    "L1": "each scope, when all its states are known, backwards over the recorded transitions",
    "symmetry": "small scopes, in the tests and below",
    "one at a time": "small scopes, in the tests and below",
    "once": "small scopes, in the tests and below",
}
INTRODUCTION = """
`blockproof explore` visits **every** reachable state of small scopes, breadth first. From each state every
operation of a scheduler is made on the real `blockproof.model.core.Model` and on the real `KVCacheManager` of
`blockproof.impl`; outcome, events and the whole state are compared after each; and what must hold in every
state, and of every transition, is checked. A path to a finding is the shortest there is, and is an ordinary
trace for `blockproof replay`.

A **state** is what both sides consist of between two operations: tables, references, the order of the free
queue, which content each block is registered as and in which order, which leading entries count as
registered, which states were registered in this step, and of each request its tokens, how many of them are
computed and scheduled, and whether others are to arrive from outside. It is **at rest** if no operation has
left a request in the middle of something (submitted and not
looked up, looked up and not allocated, allocated and not run). States are counted up to the names of blocks
and requests, one request is looked at at a time, and an operation is made once for all states that look alike
to its request; why none of this loses anything stands in `fuzz/exploration/packing.py`, `moves.py` and
`expansion.py`, and is tested below. Contents are compared, never hashes: our
core runs with a hash function that numbers contents, so it has no collisions.
"""
MEANINGS = """
What S2, S6 and S7 mean here: which tokens the next query reads is asked of `Rule.attends`, position by
position, never of a closed form; what a block *holds* is the token prefix that it stands for in a table, or
is registered as, so two blocks hold the same exactly if these tokens are equal. Prompts differ in tokens
only: adapters, salts, images and embeddings are the fuzzer's (their identities are theorems T22 and T23). S3
is the shadow memory's (`blockproof fuzz`), S13 needs a device with a step in flight, and S14 speaks about
replays of whole prompts.
"""
LIMITS = """
Not explored: outside holders of blocks, tokens taken back after their step was counted (`Reject`), encoder
tokens, context parallelism, statistics, and the observers that change nothing (`CommonPrefix`, `ReadTable`).
Each is drawn by the fuzzer.
"""


def scope_table(done: Sequence[Exploration]) -> list[str]:
    rows = []
    for each in done:
        scope = SCOPES[each.scope]
        groups = shape_text(scope.shape).removeprefix("shape: ").partition(", max_model_len")[0]
        counts = [f"{count:,}" for count in (each.states, each.resting, each.transitions, each.depth)]
        rate = f"{each.states / each.cpu_seconds:,.0f}"
        rows.append([each.scope, groups, scope.requests, *counts, f"{each.cpu_seconds:.1f}", rate])
    states, cpu = sum(each.states for each in done), sum(each.cpu_seconds for each in done)
    rest, moves = sum(each.resting for each in done), sum(each.transitions for each in done)
    lines = table(
        "scope | shape | requests: | states: | at rest: | transitions: | depth: | CPU s: | states/CPU s:", rows
    )
    return [*lines, f"| **all** | | | **{states:,}** | {rest:,} | {moves:,} | | {cpu:.0f} | **{states / cpu:,.0f}** |"]


def reached_table(done: Sequence[Exploration]) -> list[str]:
    reached = {
        each.scope: ", ".join(f"{name} {each.reached[name]:,}" for name in SCOPES[each.scope].must_reach)
        for each in done
    }
    return table("scope | what it must reach, and how often it did", reached.items())


def property_table() -> list[str]:
    faults = by_property()
    shown = {name: ", ".join(fault_text(fault.name) for fault in faults[name]) for name in MEANING}
    rows = ([name, meaning, CHECKED[name], shown[name]] for name, meaning in MEANING.items())
    return table("id | what must hold | checked at | planted faults, and the operations to find them", rows)


def fault_text(name: str) -> str:
    fault = FAULTS[name]
    if fault.found_by in reductions.CHECKS:
        found = reductions.as_exploration(fault.scope, name).finding
        return f"`{name}`" if found else f"`{name}` NOT FOUND"
    finding = Search(fault.scope, name).run().finding
    alone = (
        finding is not None
        and set(finding.names) - {"lockstep"} <= {fault.found_by}
        and fault.found_by in finding.names
    )
    return f"`{name}` ({len(finding.operations)})" if finding and alone else f"`{name}` NOT FOUND"


def reduction_table(scopes: Sequence[Scope]) -> list[str]:
    rows = []
    for scope in scopes:
        broken, named, canonical = reductions.symmetry(scope)
        lost, every, reduced = reductions.one_at_a_time(scope)
        missed, operations, made = reductions.once(scope)
        if broken or lost or missed:
            sys.exit(f"{scope.name}: {broken + lost + missed}")
        counts = (named, canonical, every, reduced, operations, made)
        rows.append([scope.name, *(f"{count:,}" for count in counts)])
    states = "states with names: | up to names: | at rest, any order: | one at a time:"
    return table(f"scope | {states} | operations: | made once:", rows)


def path_lines(name: str) -> list[str]:
    finding = Search(FAULTS[name].scope, name).run().finding
    if finding is None:
        sys.exit(f"{name}: nothing was found, so the page would say something wrong")
    steps = [f"    {operation_text(operation)}" for operation in finding.operations]
    return [*wrapped(f"`{name}`: {finding.names[0]}, {finding.broken[0][1]}."), "", *steps]


def pin() -> None:
    """Write down the counts that the tests compare with."""
    scopes = {scope.name: scope for scope in (TINY, SMALL, ALONE, CROWDED, WINDOW, STATES)}
    for attention in ("full", "sliding", "chunked", "sink"):
        scope = made_to_measure(attention, blocks=5 if attention == "sink" else 4, requests=2, block_size=1)
        scopes[f"made to measure: {attention}"] = scope
    found = {}
    for name, scope in {**scopes, **SCOPES}.items():
        done = Search(scope).run(Limits(MOST_PINNED))
        if done.finding is not None:
            sys.exit(f"{name}: {done.finding}")
        if done.ended == EXHAUSTED:
            found[name] = [done.states, done.resting, done.transitions, done.depth]
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(counts)}" for name, counts in found.items())
    put(f"{{\n{lines}\n}}\n", PINNED)


def page(load: float, done: Sequence[Exploration]) -> str:
    only = ", ".join(f"`{name}`" for name in sorted(ONLY_THERE))
    return "\n".join(
        [
            "# Exploration",
            "",
            f"Written by `{command()}`.",
            INTRODUCTION,
            *machine_lines(load, "CPU time, of one process"),
            "",
            "Scopes of the rule of today are explored in another way: [there](../reference/today.md#small-scopes).",
            "",
            "## Scopes",
            "",
            *scope_table(done),
            "",
            "All states of all of them were visited, nothing was found, and each reached what it is there for:",
            "",
            *reached_table(done),
            LIMITS,
            "## Properties",
            "",
            *property_table(),
            MEANINGS,
            "## What the reductions save, and that they lose nothing",
            "",
            *reduction_table([TINY, CROWDED, STEPS, ALONE]),
            "",
            "## What it finds where both sides are wrong alike",
            "",
            "No comparison of the two sides can show these; the properties do. The last token of a prompt that came",
            "from outside as a whole is computed again, and a window that was cut as if it were not lacks a block:",
            "",
            *path_lines("loaded-tokens-cut"),
            "",
            "Room for tokens from outside that is taken before all groups hold their hits is taken from a hit:",
            "",
            *path_lines("external-before-hits"),
            "",
            *wrapped(f"Only scopes with tokens from outside, reserved blocks, no cache or three groups show {only}."),
            "",
        ]
    )


def main() -> None:
    asked = parser(__doc__)
    asked.add_argument("--scopes", default=",".join(SCOPES), help="which, by name, joined by commas")
    asked.add_argument("--pin", action="store_true", help="only write the counts that the tests compare with")
    arguments = asked.parse_args()
    if arguments.pin:
        pin()
        return
    load = os.getloadavg()[0]
    done = []
    for name in arguments.scopes.split(","):
        done.append(Search(SCOPES[name]).run())
        print(f"{name}: {done[-1].states:,} states, {done[-1].seconds:.1f} s", file=sys.stderr)
        if not done[-1].passed:
            sys.exit(f"{name}: {done[-1].ended}, {done[-1].finding}, missing {done[-1].missing}")
    put(page(load, done), arguments.write)


if __name__ == "__main__":
    main()
