"""One short story on our core and on every release of vLLM that is installed here, and the table of releases."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.vllm.releases import KNOWN, REFERENCE, RELEASES, page, release_of
from blockproof.fuzz.opening import environments
from blockproof.fuzz.targets.base import Target, hidden_fields
from blockproof.model.ops import (
    Advance,
    Allocate,
    Done,
    Failed,
    Free,
    Group,
    Lookup,
    Operation,
    Preempt,
    Reset,
    Shape,
    StepStart,
    Submit,
    Value,
)
from blockproof.model.snapshot import Snapshot

INSTALLED = [environment.name for environment in environments.installed(families()["vllm"])]
FULL, WINDOW, CHUNK = Group("full", 2), Group("sliding", 2, window=3), Group("chunked", 2, chunk=16)
STATE = {mode: Group("mamba", 2, mamba_mode=mode) for mode in ("none", "all", "align")}


def shape(*groups: Group, eagle: bool = False) -> Shape:
    return Shape(groups, 24, 16, 2, 2, 16, eagle=eagle)


STORIES = {
    "full": (shape(FULL), 8),
    "full, eagle": (shape(FULL, eagle=True), 6),
    "sliding": (shape(WINDOW), 8),
    "chunked": (shape(CHUNK), 8),
    "mamba, none": (shape(STATE["none"]), 8),
    "mamba, all": (shape(STATE["all"]), 8),
    "mamba, align": (shape(STATE["align"]), 8),
    "full + sliding": (shape(FULL, WINDOW), 8),
    "full + sliding, eagle": (shape(FULL, WINDOW, eagle=True), 4),  # 0.19 drops a block in each group
    "full + mamba": (shape(FULL, STATE["align"]), 8),
    "full + sliding + mamba": (shape(FULL, WINDOW, STATE["align"]), 8),
}
"""Shapes, and the least hit in tokens of a prompt of 9 that has been computed in chunks of 8 and 1."""


AMONG_QUICK = {f"vllm=={REFERENCE}", *INSTALLED[:1], *INSTALLED[-1:]}
"""The oldest and the newest, and that of the reference; each takes eight seconds to import."""
TRIED = [pytest.param(name, marks=() if name in AMONG_QUICK else pytest.mark.slow) for name in INSTALLED]


@pytest.fixture(scope="module", params=["impl", *TRIED])
def target(request: pytest.FixtureRequest, started_once: Callable[[str], Target]) -> Target:
    return started_once(request.param)


def done(target: Target, operation: Operation) -> tuple[Value, Snapshot]:
    outcome, state = target.step(operation)
    assert isinstance(outcome, Done), (operation, outcome)
    return outcome.value, state


@pytest.mark.parametrize("name", STORIES)
def test_a_request_lives_and_its_prompt_is_found_again(target: Target, name: str) -> None:
    of_shape, least_hit = STORIES[name]
    outcome, _ = target.start(of_shape)
    if name in ("mamba, none", "mamba, all") and "Group.mamba_mode" in getattr(target, "lacks", ()):
        assert outcome == Failed("NotImplementedError")
        return
    assert outcome == Done()
    prompt = tuple(range(9))
    for request in "ab":
        done(target, StepStart())
        done(target, Submit(request, prompt))
        found, state = done(target, Lookup(request))
        assert isinstance(found, tuple)
        tokens = found[0]
        assert isinstance(tokens, int)
        assert tokens == 0 if request == "a" else least_hit <= tokens <= 8
        if not tokens:
            done(target, Allocate(request, 8, hit=True))
            done(target, Advance(request))
            done(target, StepStart())
        _, state = done(target, Allocate(request, 9 - (tokens or 8), hit=bool(tokens)))
        assert all(request in tables for tables in state.tables)
        done(target, Advance(request, (50,)))
    done(target, Preempt("b"))
    assert done(target, Lookup("b"))[0] == found
    done(target, Free("a"))
    _, state = done(target, Free("b"))
    assert state.tables == [{} for _ in of_shape.groups]
    assert sorted(state.free) == list(range(1, 24))
    assert done(target, Reset())[0] is True
    done(target, Submit("c", prompt))
    assert done(target, Lookup("c"))[0] == (0, tuple(() for _ in of_shape.groups))


def test_the_target_says_its_version(target: Target) -> None:
    target.start(shape(FULL))
    release = target.name.partition("==")[2]
    assert getattr(target, "version", None) == release or target.name == "impl"


def test_a_copied_block_is_told(target: Target) -> None:
    """A hit that ends inside a state's block: releases that find one copy the state, and say so."""
    finer = Shape((FULL, Group("mamba", 4, mamba_mode="align")), 24, 16, 2, 4, 16)
    assert target.start(finer)[0] == Done()
    for operation in (Submit("a", (1, 2, 3, 4, 5, 6, 7)), Allocate("a", 6), Advance("a"), Allocate("a", 1)):
        done(target, operation)
    done(target, StepStart())
    done(target, Submit("b", (1, 2, 3, 4, 5, 6, 8)))
    found, _ = done(target, Lookup("b"))
    assert isinstance(found, tuple)
    partial = target.name.startswith("vllm") and release_of(target.name.partition("==")[2]).copies
    assert found[0] == (6 if partial else 0)
    _, state = done(target, Allocate("b", 1 if partial else 7, hit=True))
    copies: tuple[tuple[int, int], ...] = getattr(target, "copies", ())
    if not partial:
        assert copies == ()
        return
    ((source, destination),) = copies
    assert state.tables[1]["b"].count(destination) == 1
    assert source not in state.tables[1]["b"]
    assert hidden_fields(target) >= {"labels", "registered"}
    done(target, StepStart())
    assert getattr(target, "copies", ()) == ()


# The table.


@pytest.mark.parametrize(
    ("version", "since"), [("0.19.0", "0.19"), ("0.22.1", "0.21"), ("0.23.0", "0.23"), ("0.40.0rc1", "0.33")]
)
def test_a_version_is_called_as_the_newest_record_that_is_not_newer(version: str, since: str) -> None:
    assert release_of(version).since == since


def test_a_version_before_the_table_cannot_be_driven() -> None:
    with pytest.raises(ValueError, match=r"vLLM 0\.18\.2 is older than 0\.19"):
        release_of("0.18.2")


def test_what_a_release_lacks() -> None:
    assert release_of(REFERENCE).lacks == frozenset()
    assert {"Allocate.reserved", "Shape.retention_interval", "Group.kind=tq"} <= release_of("0.19.1").lacks
    assert release_of("0.33.0").lacks >= {"CommonPrefix", "Release.prepend", "Shape.prefill_parallel"}


def test_events_without_groups_are_hidden_where_there_are_several() -> None:
    def manager(groups: int) -> SimpleNamespace:
        coordinator = SimpleNamespace(single_type_managers=[None] * groups)
        return SimpleNamespace(coordinator=coordinator, block_pool=SimpleNamespace())

    oldest = release_of("0.19.1")
    assert oldest.hides(manager(1)) == frozenset()
    assert oldest.hides(manager(2)) == {"events"}
    assert release_of("0.20.2").hides(manager(2)) == frozenset()


def test_known_releases_are_those_of_the_table() -> None:
    minors = [version.rpartition(".")[0] for version in KNOWN]
    assert minors == [f"0.{minor}" for minor in range(19, 34)]
    assert {release.since for release in RELEASES} <= set(minors)


def test_page_in_the_docs_shows_the_table() -> None:
    path = Path(__file__).parents[3] / "docs" / "evidence" / "releases.md"
    assert page() in path.read_text(), "docs/evidence/releases.md is stale: put releases.page() into it"
