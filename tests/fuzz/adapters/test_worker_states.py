"""What a step writes by `model.attention.Mamba.writes`, beside the worker functions of the releases installed here."""

import json
import subprocess
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.vllm.releases import REFERENCE
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import environment_of
from blockproof.model.attention import Mamba, Step, rule_for
from blockproof.model.ops import Group, MambaMode, Shape

SCRIPT = Path(__file__).with_name("worker_states.py")
LONGEST = 14
MODES: tuple[MambaMode, ...] = ("none", "align", "all")
INSTALLED = {environment.name: environment for environment in environments.installed(families()["vllm"])}


def rule(mode: MambaMode, size: int, for_drafts: int) -> Mamba:
    group = Group("mamba", size, mamba_mode=mode, speculative_blocks=for_drafts)
    made = rule_for(group, Shape((group,), 99, LONGEST, size, size, LONGEST))
    assert isinstance(made, Mamba)
    return made


def cases() -> list[tuple[MambaMode, int, int, int, int, int, int]]:
    """Mode, block size, blocks for drafts, computed tokens, tokens of the step, drafts, drafts that are right. A step
    with drafts has one token before them, as vLLM's have."""
    return [
        (mode, size, most, computed, tokens, drafts, right)
        for mode in MODES
        for size in ((LONGEST,) if mode == "none" else (1, 2, 3, 4))
        for most in (0, 1, 2, 3)
        for drafts in range(most + 1)
        for computed in range(LONGEST)
        for tokens in ((1 + drafts,) if drafts else range(1, LONGEST))
        if computed + tokens <= LONGEST
        for right in range(drafts + 1)
    ]


@pytest.mark.parametrize(
    "release",
    [
        pytest.param(f"vllm=={version}", marks=() if version == REFERENCE else pytest.mark.slow)
        for version in (REFERENCE, "0.26.0", "0.33.0")
    ],
)
def test_a_step_writes_what_the_worker_of_the_release_writes(release: str, tmp_path: Path) -> None:
    if release not in INSTALLED:
        pytest.skip(f"{release} is not installed (blockproof targets install {release})")
    place, asked = INSTALLED[release].place, cases()
    ended = subprocess.run(
        [str(place.python), str(SCRIPT)],
        input="".join(json.dumps(case) + "\n" for case in asked),
        env={**environment_of(place, tmp_path), "VLLM_LOGGING_LEVEL": "CRITICAL"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    answers = [json.loads(line) for line in ended.stdout.splitlines() if line[:1] in "{n"]
    assert len(answers) == len(asked)
    compared = dict.fromkeys(MODES, 0)
    for (mode, size, most, computed, tokens, drafts, right), answer in zip(asked, answers, strict=True):
        if answer is None:
            continue
        step = Step(computed, computed + tokens, drafts)
        expected = rule(mode, size, most).writes(step, right=step.known + right)
        theirs = {int(entry): after for entry, after in answer.items()}
        assert theirs == expected, (mode, size, most, step, right)
        compared[mode] += 1
    assert compared["none"] > 300
    assert compared["align"] > 2000
    assert compared["all"] > 2000 or release == "vllm==0.33.0"  # which has no such mode any more
