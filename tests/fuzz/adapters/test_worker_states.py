"""What a step writes by `model.attention.Mamba.writes`, beside the worker functions of the releases installed here."""

import json
import subprocess
from collections.abc import Sequence
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


RELEASES = [
    pytest.param(f"vllm=={version}", marks=() if version == REFERENCE else pytest.mark.slow)
    for version in (REFERENCE, "0.26.0", "0.33.0")
]


def answers_of(release: str, asked: Sequence[Sequence[object]], folder: Path) -> list[dict[str, int] | None]:
    """Which blocks the worker functions of a release write in these cases, and the state in each afterwards."""
    if release not in INSTALLED:
        pytest.skip(f"{release} is not installed (blockproof targets install {release})")
    place = INSTALLED[release].place
    ended = subprocess.run(
        [str(place.python), "-P", "-c", SCRIPT.read_text(encoding="utf-8")],
        input="".join(json.dumps(case) + "\n" for case in asked),
        env={**environment_of(place, folder), "VLLM_LOGGING_LEVEL": "CRITICAL"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    answers = [json.loads(line) for line in ended.stdout.splitlines() if line[:1] in "{n"]
    assert len(answers) == len(asked)
    return answers


@pytest.mark.slow  # half a minute, of which most is to import a release with its workers
@pytest.mark.parametrize("release", RELEASES)
def test_an_accepted_draft_is_copied_onto_the_state_that_is_read_next_where_a_block_has_moved(
    release: str, tmp_path: Path
) -> None:
    """`draft-states-moved-away.corruption`, as its worker runs it: blocks of 2 tokens, blocks for 3 drafts, and a step
    from 2 to 5 tokens, 2 of them drafts. The table went from `[1, 2, 3, 4]` to `[1, 0, 3, 4, 2, 5]`; the worker's row
    became longer by what was told. The state of 5 tokens is in entry 4, that of 4 is copied into entry 1."""
    moved, apart = [1, 2, 3, 4, 2, 5], [1, 2, 3, 4, 6, 5]
    step = ("align", 2, 3, 2, 3, 2, 2)
    found = answers_of(release, [(*step, moved), (*step, apart)], tmp_path)
    assert found == [{"3": 3, "4": 4, "2": 4}, {"3": 3, "4": 4, "6": 5, "2": 4}]


@pytest.mark.parametrize("release", RELEASES)
def test_a_step_writes_what_the_worker_of_the_release_writes(release: str, tmp_path: Path) -> None:
    asked = cases()
    answers = answers_of(release, asked, tmp_path)
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
