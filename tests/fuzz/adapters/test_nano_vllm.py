"""nano-vllm, driven through its adapter at two commits of its history; needs the history, numpy and xxhash."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.nano_vllm import make_target
from blockproof.fuzz.adapters.nano_vllm.engine import CHECKOUT, load
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.engines.smallest import smallest
from blockproof.fuzz.findings.known import KnownFinding
from blockproof.fuzz.findings.severity import Severity, severity
from blockproof.fuzz.opening.child import ChildTarget
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.base import Target, TargetUnavailableError
from blockproof.model import ops
from blockproof.model.ops import Done, Failed, Group, Refused, Shape

ROOT = Path(__file__).resolve().parents[3]
HISTORY = ROOT.parent / "shared" / "engines" / "nano-vllm.bundle"
NAME = "blockproof.fuzz.adapters.nano_vllm:make_target"
NEWEST, WRONG_CONTENT, WHOLE_PROMPTS = "bb823b3", "f64d821", "a4f94cb"
SHAPE = Shape((Group("full", 4),), 6, 32, 4, 4, 32)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a checkout of a commit."""
    if not HISTORY.exists():
        pytest.skip("the history of nano-vllm is not here")
    pytest.importorskip("xxhash")

    def at(commit: str) -> Path:
        folder = tmp_path_factory.mktemp(commit) / "nano-vllm"
        subprocess.run(["git", "clone", "--quiet", HISTORY, folder], check=True)
        subprocess.run(["git", "-C", folder, "checkout", "--quiet", "--detach", commit], check=True)
        return folder

    return at


@pytest.fixture
def opened(checkout, monkeypatch):
    """Opens the target of a commit in this process, which forgets the commit before: a module is imported once."""

    def forget() -> None:
        load.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "nanovllm"]:
            del sys.modules[name]

    def open_at(commit: str) -> Target:
        monkeypatch.setenv(CHECKOUT, str(checkout(commit)))
        forget()
        return make_target()

    yield open_at
    forget()


def run(target: Target, *operations: ops.Operation) -> list[object]:
    assert target.start(SHAPE)[0] == Done()
    return [target.step(operation)[0] for operation in operations]


@pytest.mark.parametrize("commit", [NEWEST, WRONG_CONTENT, WHOLE_PROMPTS])
def test_one_request_is_served_and_its_block_is_found_again(opened, commit):
    target = opened(commit)
    outcomes = run(
        target,
        ops.Submit("a", tuple(range(5))),
        ops.Lookup("a"),
        ops.Allocate("a", 5, hit=True),
        ops.Advance("a", (9,)),
        ops.Allocate("a", 1),
        ops.Advance("a", (9,)),
        ops.ReadTable("a"),
        ops.Free("a"),
        ops.Submit("b", tuple(range(6))),
        ops.Lookup("b"),
        ops.Allocate("b", 2, hit=True),
        ops.Free("nobody"),
    )
    assert outcomes == [
        Done(1),
        Done((0, ((),))),
        Done(((1, 2),)),
        Done(1),
        Done(((),)),
        Done(1),
        Done(((1, 2),)),
        Done(),
        Done(1),
        Done((4, ((1,),))),
        Done(((3,),)),
        Done(),
    ]


def test_a_pool_that_is_too_small_refuses(opened):
    target = opened(NEWEST)
    outcomes = run(target, ops.Submit("a", (0,) * 24), ops.Allocate("a", 24), ops.Submit("b", (0,) * 4))
    assert outcomes[1] == Refused()


def test_an_allocation_without_a_hit_takes_nothing_from_the_cache(opened):
    for commit in (NEWEST, WHOLE_PROMPTS):
        target = opened(commit)
        steps = [ops.Submit("a", (0,) * 5), ops.Allocate("a", 5), ops.Advance("a"), ops.Free("a")]
        outcomes = run(target, *steps, ops.Submit("b", (0,) * 5), ops.Allocate("b", 5))
        assert outcomes[-1] == Done(((3, 4),)), commit


def test_a_scheduler_that_computes_prompts_as_a_whole_refuses_a_piece(opened):
    assert run(opened(WHOLE_PROMPTS), ops.Submit("a", (0,) * 5), ops.Allocate("a", 4))[-1] == Refused()
    assert run(opened(NEWEST), ops.Submit("a", (0,) * 5), ops.Allocate("a", 4))[-1] == Done(((1, 2),))


@pytest.mark.parametrize(
    "shape",
    [
        Shape((Group("sliding", 4, window=3),), 6, 32, 4, 4, 32),
        Shape((Group("full", 1),), 6, 32, 1, 1, 32),
        Shape((Group("full", 4),), 6, 32, 4, 4, 32, caching=False),
        Shape((Group("full", 4),), 6, 32, 4, 4, 32, eagle=True),
        Shape((Group("full", 4),), 6, 32, 8, 8, 32, decode_parallel=2),
    ],
)
def test_what_it_has_no_core_for_cannot_be_built(opened, shape):
    outcome, shown = opened(NEWEST).start(shape)
    assert outcome == Failed("NotImplementedError")
    assert shown is None


@pytest.mark.slow
def test_the_wrong_content_of_one_commit_is_found_and_fixed_in_the_next(checkout, monkeypatch, tmp_path, capfd):
    command = ["fuzz", "--target", NAME, "--attention", "full", "--oracle", "shadow", "--seed", "1", "--isolate"]
    command += ["--operations", "2000", "--out", str(tmp_path)]
    monkeypatch.setenv(CHECKOUT, str(checkout(WRONG_CONTENT)))
    assert main(command) == 1
    assert "reads another content" in capfd.readouterr().out
    monkeypatch.setenv(CHECKOUT, str(checkout(NEWEST)))
    assert main(command) == 0


def test_each_defect_shows_with_the_engines_own_scheduler(checkout):
    script = ROOT / "docs" / "evidence" / "nano_vllm_confirm.py"

    def said(commit: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, script, checkout(commit)], capture_output=True, text=True)
        return done.returncode, done.stdout

    newest, older = said(NEWEST), said(WRONG_CONTENT)
    assert (newest[0], older[0]) == (1, 1)
    assert "the same prompt hits 0" in newest[1]
    assert "hits 0 of them" in newest[1]
    assert "hits 256 of them" in older[1]
    assert "engine ended: AssertionError" in newest[1]
    assert "the same prompt hits 256" in said("77dd709")[1]


SIMULATED = "blockproof.fuzz.adapters.nano_vllm.simulated"


def simulated(checkout, monkeypatch, out: Path, commit: str, factory: str = "make_repaired", *more: str) -> int:
    """The exit code of a short simulation of a commit."""
    monkeypatch.setenv(CHECKOUT, str(checkout(commit)))
    command = ["simulate", "--target", f"{SIMULATED}:{factory}", "--seed", "1", "--steps", "3000"]
    return main([*command, "--out", str(out), *more])


def test_its_own_scheduler_is_simulated(checkout, monkeypatch, tmp_path, capsys):
    assert simulated(checkout, monkeypatch, tmp_path, NEWEST) == 0
    said = capsys.readouterr().out
    assert "preemptions: " in said
    assert "ended: stop: " in said
    assert "not observed" not in said


@pytest.mark.parametrize(
    ("commit", "said"),
    [
        (WRONG_CONTENT, "which holds another content"),
        ("8d63a98", "IndexError in prepare_prefill"),  # its runner computes slots that are not there
        ("77dd709", "which holds what nobody wrote"),  # and reads as many keys as the whole prompt has
        ("38baf0b", "computes positions N to N"),  # tokens of a decode are one position too late
    ],
)
def test_mistakes_of_its_history_are_found(checkout, monkeypatch, tmp_path, capsys, commit, said):
    assert (
        simulated(checkout, monkeypatch, tmp_path, commit, "make_repaired", "--keep-going", "--shrink-seconds", "0")
        == 1
    )
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("fault", "judge"), [("other-blocks", "memory"), ("forgets", "progress")])
def test_a_planted_fault_is_found(checkout, monkeypatch, tmp_path, capsys, fault, judge):
    assert (
        simulated(checkout, monkeypatch, tmp_path, NEWEST, "make_repaired", "--fault", fault, "--shrink-seconds", "0")
        == 1
    )
    assert f": {judge}, step " in capsys.readouterr().out


@pytest.mark.parametrize("cause", ["too-large-ends-all", "longer-than-the-model-ends-all"])
def test_a_request_that_ends_the_engine_for_all_is_put_down_to_its_cause(
    checkout, monkeypatch, tmp_path, capsys, cause
):
    assert simulated(checkout, monkeypatch, tmp_path, NEWEST, "make_engine", "--keep-going") == 1
    assert "\nnew: " not in capsys.readouterr().out
    file = next(tmp_path.glob(f"simulated_{cause}_*.json"))
    assert main(["replay", str(file), "--target", f"{SIMULATED}:make_engine"]) == 1
    assert main(["replay", str(file), "--target", f"{SIMULATED}:make_repaired"]) == 0


def test_without_a_checkout_one_line_says_what_to_do(monkeypatch):
    monkeypatch.delenv(CHECKOUT, raising=False)
    with pytest.raises(TargetUnavailableError, match=f"name a checkout of nano-vllm in {CHECKOUT}"):
        ChildTarget(NAME, NAME).start(SHAPE)


def entry_of(found, target, plan):
    """The entry by which a lost hit is known, of its smallest trace."""
    small = smallest(found, target, plan)
    return replace(KnownFinding.of(small.finding, small.trace, f"lost-{small.finding.observable}"), reason="a lost hit")


@pytest.mark.slow
def test_lost_hits_that_are_known_do_not_hide_wrong_content(opened):
    target = opened(WRONG_CONTENT)
    plan = Plan(1, operations=4_000, attention=("full",), oracles=("shadow", "contract"), keep_going=True)
    wrong, *lost = run_random(target, plan, Summary(NAME, "random", 1)).ranked()
    assert (wrong.finding.observable, severity(wrong.finding)) == ("S7", Severity.WRONG_CONTENT)
    assert {one.finding.observable for one in lost} == {"S10", "S14", "S17", "S18"}
    assert {severity(one.finding) for one in lost} == {Severity.EFFICIENCY}
    known: tuple[KnownFinding, ...] = ()
    for _ in range(12):  # a mistake that shows in several ways has an entry for each
        known += tuple(entry_of(one, target, plan) for one in lost)
        plan = replace(plan, keep_going=False, known=known)
        done = run_random(target, plan, Summary(NAME, "random", 1))
        if severity(done.finding) is not Severity.EFFICIENCY:
            break
        lost = done.ranked()[:1]
    assert done.finding.observable == "S7"
    assert done.known["lost-S10"] > 0
    assert severity(done.finding) is Severity.WRONG_CONTENT
