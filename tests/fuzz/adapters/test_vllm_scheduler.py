"""The cases of findings, on the releases installed here."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.vllm.engine import cases as scheduler
from blockproof.fuzz.adapters.vllm.engine.played import Observed
from blockproof.fuzz.adapters.vllm.releases import REFERENCE
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import environment_of

# Releases. What is listed was seen with the release; a case that is no longer shown there is a change in our cases.


class Ended:
    """In place of a run: requests that starve, or an exception, in every engine."""

    def __init__(self, error: str = "", together: Sequence[str] = (), alone: Sequence[str] = ()) -> None:
        self.error, self.jobs, self.starved = error, 0, (together, alone)

    def __call__(self, setup: object) -> "Ended":
        self.jobs = 0
        return self

    def add(self, job: object, *rights: int) -> None:
        self.jobs += 1

    def step(self) -> None:
        pass

    def run(self, limit: int = 0) -> Observed:
        return Observed(error=self.error, starved=list(self.starved[self.jobs == 1]))


def test_a_case_demands_its_own_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that dies of something else was once taken for one that shows the finding."""
    case = scheduler.CASES["state-from-outside"]
    monkeypatch.setattr(scheduler, "PlayedRun", Ended("ValueError: Cannot get 1 free blocks (f, line 1)"))
    assert case().shown
    monkeypatch.setattr(scheduler, "PlayedRun", Ended("AssertionError: not verified yet (f, line 1)"))
    with pytest.raises(RuntimeError, match="another exception: AssertionError: not verified yet"):
        case()
    monkeypatch.setattr(scheduler, "PlayedRun", Ended())
    assert not case().shown


def test_requests_that_starve_alone_do_not_block_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    case = scheduler.CASES["loads-block-each-other"]
    both, one = ("one", "two"), ("two",)
    for together, alone, shown in ((both, (), True), (one, one, False), (both, one, False)):
        monkeypatch.setattr(scheduler, "PlayedRun", Ended("", together, alone))
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
        command = [str(place.python), "-P", "-m", "blockproof.fuzz.adapters.vllm.engine.cases", *SHOWN[name]]
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
