"""What a scheduler's steps read and write: the device alone, and the schedulers of the releases installed here."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.vllm import scheduler
from blockproof.fuzz.adapters.vllm.releases import REFERENCE
from blockproof.fuzz.adapters.vllm.scheduler_device import Device, DeviceJob
from blockproof.fuzz.adapters.vllm.scheduler_run import Observed
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import environment_of
from blockproof.model.ops import Group, Item, Shape, Submit

FULL, WINDOW = Group("full", 4), Group("sliding", 4, window=3)
STATE = Group("mamba", 4, mamba_mode="align")


def device(*groups: Group, **jobs: DeviceJob) -> Device:
    return Device(Shape(groups, 16, 64, 4, 4, 64), jobs, asynchronous=False)


def step(
    new: Mapping[str, tuple[Sequence[Sequence[int]], int]] | None = None,
    cached: Mapping[str, Sequence[Sequence[int]] | None] | None = None,
    drafts: Mapping[str, list[int]] | None = None,
    zero: Sequence[int] = (),
    copies: Sequence[tuple[int, int]] = (),
    **tokens: int,
) -> Any:
    """A scheduler's output. `new`: tables and computed tokens; `cached`: further blocks."""
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=name, block_ids=tables, num_computed_tokens=computed)
            for name, (tables, computed) in (new or {}).items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached or {}),
            new_block_ids=list((cached or {}).values()),
            num_computed_tokens=[0] * len(cached or {}),
            resumed_req_ids=set(),
        ),
        scheduled_spec_decode_tokens=drafts or {},
        num_scheduled_tokens=tokens,
        new_block_ids_to_zero=list(zero),
        kv_cache_block_copies=[SimpleNamespace(src_block_id=a, dst_block_id=b) for a, b in copies],
    )


def job(name: str, length: int, **more: Any) -> DeviceJob:
    submit = {key: more.pop(key) for key in ("adapter", "salt", "items") if key in more}
    return DeviceJob(Submit(name, tuple(range(1, length + 1)), **submit), **more)


def test_what_a_request_wrote_it_reads_back() -> None:
    ran = device(FULL, a=job("a", 6)).execute(step({"a": ([[1, 2]], 0)}, a=6), {"a": 6})
    assert (ran.sampled, ran.wrong) == ({"a": [1006]}, ())


def test_part_of_a_prompt_samples_nothing() -> None:
    assert device(FULL, a=job("a", 6)).execute(step({"a": ([[1]], 0)}, a=4), {"a": 6}).sampled == {"a": []}


def test_a_hit_on_equal_content_is_right() -> None:
    it = device(FULL, a=job("a", 6), b=job("b", 6))
    it.execute(step({"a": ([[1, 2]], 0)}, a=6), {"a": 6})
    assert it.execute(step({"b": ([[1, 3]], 4)}, b=2), {"b": 6}).wrong == ()


@pytest.mark.parametrize(
    "other",
    [
        DeviceJob(Submit("b", (9, 2, 3, 4, 5, 6))),
        job("b", 6, adapter="x"),
        job("b", 6, items=(Item("image", 1, 2),)),
    ],
)
def test_a_hit_on_another_content_is_seen(other: DeviceJob) -> None:
    it = device(FULL, a=job("a", 6), b=other)
    it.execute(step({"a": ([[1, 2]], 0)}, a=6), {"a": 6})
    (line,) = it.execute(step({"b": ([[1, 3]], 4)}, b=2), {"b": 6}).wrong
    assert "in block 1, which holds another content" in line


def test_another_version_of_an_adapter_is_another_content_and_another_salt_is_not() -> None:
    old, new = job("a", 6, adapter="x"), job("b", 6, adapter="x", adapter_version=1)
    it = device(FULL, a=old, b=new, c=job("c", 6, adapter="x", salt="s"))
    it.execute(step({"a": ([[1, 2]], 0)}, a=6), {"a": 6})
    assert it.execute(step({"b": ([[1, 3]], 4)}, b=2), {"b": 6}).wrong
    assert not it.execute(step({"c": ([[1, 4]], 4)}, c=2), {"c": 6}).wrong


def test_a_block_that_somebody_else_writes_is_seen() -> None:
    it = device(FULL, a=job("a", 6), b=DeviceJob(Submit("b", (9,))))
    it.execute(step({"a": ([[1, 2]], 0)}, a=6), {"a": 6})
    it.execute(step({"b": ([[1]], 0)}, b=1), {"b": 1})
    (line,) = it.execute(step(cached={"a": None}, a=1), {"a": 7}).wrong
    assert "position 0 of group 0" in line


def test_within_one_step_all_write_before_any_reads() -> None:
    it = device(FULL, a=job("a", 4), b=DeviceJob(Submit("b", (9, 9, 9, 9))))
    ran = it.execute(step({"a": ([[1]], 0), "b": ([[1]], 0)}, a=4, b=4), {"a": 4, "b": 4})
    assert [line.split(":")[0] for line in ran.wrong] == ["a"]


def test_a_window_reads_no_further_back_than_it_reaches() -> None:
    it = device(WINDOW, a=job("a", 9), b=DeviceJob(Submit("b", (9, 9, 9, 9))))
    it.execute(step({"a": ([[1, 2, 3]], 0)}, a=8), {"a": 9})
    it.execute(step({"b": ([[1]], 0)}, b=4), {"b": 4})
    assert it.execute(step(cached={"a": None}, a=1), {"a": 9}).wrong == ()
    it.execute(step({"b": ([[2]], 0)}, b=4), {"b": 4})
    assert it.execute(step(cached={"a": None}, a=1), {"a": 10}).wrong


def test_the_null_block_and_a_table_that_ends_too_early_are_seen() -> None:
    it = device(FULL, a=job("a", 6), b=job("b", 6))
    assert "in the null block" in it.execute(step({"a": ([[0, 2]], 4)}, a=2), {"a": 6}).wrong[0]
    assert "there is no block" in it.execute(step({"b": ([[1]], 0)}, b=6), {"b": 6}).wrong[0]


def test_a_block_cleared_for_its_new_owner_holds_nothing() -> None:
    it = device(FULL, a=job("a", 6))
    it.execute(step({"a": ([[1, 2]], 0)}, a=6), {"a": 6})
    assert "what nobody wrote" in it.execute(step(cached={"a": None}, zero=[1], a=1), {"a": 7}).wrong[0]


def test_a_copy_holds_what_was_copied() -> None:
    it = device(FULL, a=job("a", 6), b=job("b", 6), c=job("c", 6))
    it.execute(step({"a": ([[1, 2]], 0)}, a=6), {"a": 6})
    assert it.execute(step({"b": ([[5, 3]], 4)}, copies=[(1, 5)], b=2), {"b": 6}).wrong == ()
    assert it.execute(step({"c": ([[6, 4]], 4)}, c=2), {"c": 6}).wrong


def test_right_drafts_are_kept_and_wrong_ones_written_over() -> None:
    it = device(FULL, a=job("a", 4, drafts=((2, 1), (2, 0))))
    it.execute(step({"a": ([[1, 2, 3]], 0)}, a=4), {"a": 4})
    first = it.execute(step(cached={"a": None}, drafts={"a": [0, 0]}, a=3), {"a": 5})
    second = it.execute(step(cached={"a": None}, drafts={"a": [0, 0]}, a=3), {"a": 7})
    third = it.execute(step(cached={"a": None}, a=1), {"a": 8})
    assert [ran.sampled["a"] for ran in (first, second, third)] == [[1005, 1006], [1007], [1008]]
    assert (first.wrong, second.wrong, third.wrong) == ((), (), ())


def test_what_comes_from_outside_comes_after_blocks_are_cleared() -> None:
    it = device(FULL, a=job("a", 6, external=4))
    it.load("a", [[1, 2]], 0, 4)
    assert it.execute(step({"a": ([[1, 2]], 4)}, zero=[1, 2], a=2), {"a": 6}).wrong == ()


def test_a_state_is_read_where_the_hit_says_it_is() -> None:
    it = device(STATE, a=job("a", 6), b=job("b", 6), c=job("c", 6))
    it.execute(step({"a": ([[1]], 0)}, a=4), {"a": 6})
    assert it.execute(step({"b": ([[1, 3]], 4)}, b=2), {"b": 6}).wrong == ()
    assert "holds what nobody wrote" in it.execute(step({"c": ([[5, 6]], 4)}, c=2), {"c": 6}).wrong[0]


def test_a_state_that_moved_with_its_request_is_found_again() -> None:
    it = device(STATE, a=job("a", 4), b=DeviceJob(Submit("b", (9,))))
    it.execute(step({"a": ([[1]], 0)}, a=4), {"a": 4})
    assert it.execute(step(cached={"a": [[2]]}, a=1), {"a": 5}).wrong == ()
    it.execute(step({"b": ([[2]], 0)}, b=1), {"b": 1})
    assert it.execute(step(cached={"a": None}, a=1), {"a": 6}).wrong


# Releases. What is listed was seen with the release; a case that is no longer shown there is a change in our cases.


class Ended:
    """In place of a scheduler run: requests that starve, or an exception, in every engine."""

    def __init__(self, error: str = "", together: Sequence[str] = (), alone: Sequence[str] = ()) -> None:
        self.error, self.jobs, self.starved = error, 0, (together, alone)

    def __call__(self, setup: object) -> "Ended":
        self.jobs = 0
        return self

    def add(self, job: DeviceJob) -> None:
        self.jobs += 1

    def step(self) -> None:
        pass

    def run(self, limit: int = 0) -> Observed:
        return Observed(error=self.error, starved=list(self.starved[self.jobs == 1]))


def test_a_case_demands_its_own_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that dies of something else was once taken for one that shows the finding."""
    case = scheduler.CASES["state-from-outside"]
    monkeypatch.setattr(scheduler, "SchedulerRun", Ended("ValueError: Cannot get 1 free blocks (f, line 1)"))
    assert case().shown
    monkeypatch.setattr(scheduler, "SchedulerRun", Ended("AssertionError: not verified yet (f, line 1)"))
    with pytest.raises(RuntimeError, match="another exception: AssertionError: not verified yet"):
        case()
    monkeypatch.setattr(scheduler, "SchedulerRun", Ended())
    assert not case().shown


def test_requests_that_starve_alone_do_not_block_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    case = scheduler.CASES["loads-block-each-other"]
    both, one = ("one", "two"), ("two",)
    for together, alone, shown in ((both, (), True), (one, one, False), (both, one, False)):
        monkeypatch.setattr(scheduler, "SchedulerRun", Ended("", together, alone))
        assert case().shown is shown


SHOWN: Mapping[str, Mapping[str, bool | None]] = {
    "vllm==0.19.1": {
        "window-reserved-as-full": True,
        "adapter-named-like-salt": True,
        "state-beyond-keys": False,
        "state-from-outside": None,  # the engine dies of another assertion before
        "prompt-loaded-whole": True,
        "loads-block-each-other": False,  # a request starves there, but alone, too: window-reserved-as-full
    },
    "vllm==0.23.0": {
        "adapter-named-like-salt": True,
        "items-lost-on-restart": True,
        "overlapping-items": True,
        "state-beyond-keys": True,
        "window-cut-too-early": True,
        "window-cut-without-drafts": False,
        "hit-taken-for-external": True,
        "hit-not-cut": True,
        "state-from-outside": True,
        "window-reserved-as-full": False,
        "loads-block-each-other": True,
        "prompt-loaded-whole": True,
    },
    "vllm==0.33.0": {
        "adapter-named-like-salt": False,
        "items-lost-on-restart": False,
        "overlapping-items": True,
        "state-beyond-keys": False,
        "window-cut-too-early": False,
        "hit-taken-for-external": False,
        "hit-not-cut": False,
        "state-from-outside": True,
        "window-reserved-as-full": False,
        "loads-block-each-other": True,
        "prompt-loaded-whole": True,
    },
}
INSTALLED = {environment.name: environment for environment in environments.installed(families()["vllm"])}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, dict[str, Any]]]:
    """What a release's scheduler shows, by case; each release is asked once."""

    @cache
    def ask(name: str) -> dict[str, dict[str, Any]]:
        place = INSTALLED[name].place
        environment = environment_of(place, tmp_path_factory.mktemp("modules"))
        command = [str(place.python), "-m", "blockproof.fuzz.adapters.vllm.scheduler", *SHOWN[name]]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 0, ended.stderr[-2000:]
        found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        return {line["case"]: line for line in found}

    return ask


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=() if name == f"vllm=={REFERENCE}" else pytest.mark.slow)
        for name, cases in SHOWN.items()
        for case in cases
    ],
)
def test_the_release_shows_what_it_showed(
    asked: Callable[[str], dict[str, dict[str, Any]]], name: str, case: str
) -> None:
    if name not in INSTALLED:
        pytest.skip(f"{name} is not installed (blockproof targets install {name})")
    line = asked(name)[case]
    assert line["shown"] is SHOWN[name][case], line["what"]
    room = line["observed"]["room"] if line.get("observed") else 0
    assert room >= 0, "the start-up check would have refused this engine"
