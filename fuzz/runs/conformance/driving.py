"""Drives a target through a scenario, and judges each answer: first by what the script expects, then by the oracles."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....model.legal import allows
from ....model.ops import Done, Failed, Operation, Outcome, Refused, Shape, Submit
from ....model.snapshot import Snapshot
from ...findings.finding import LOST, Finding
from ...findings.oracle_names import CONTRACT, LIVENESS, SHADOW
from ...findings.words import cause_lines, operation_text, outcome_text
from ...targets.adapting import adapted, adapted_shape
from ...targets.base import Target, hidden_fields, left_out_for
from ...targets.declarations import EVICTS_MORE, in_shape
from ..judging import Judging
from ..open_run import open_run
from .expected import NO_HIT, Answer, Check, LabelOrder, no_lists, only_blocks, right_kind, right_types, sound_state
from .lines import Conformance, Line, Scenario, Wrong

ORACLES: tuple[str, ...] = (SHADOW, CONTRACT)
"""What judges the answers unless somebody says otherwise."""


class End(Exception):
    """The scenario ends here."""


class ScenarioDriver:
    """One scenario: a core of one shape, and questions to it."""

    def __init__(self, target: Target, report: Conformance, oracles: Sequence[str] = ORACLES) -> None:
        self.target = _Recorded(target)
        self.report = report
        self.scenario = Scenario("")
        self._run = open_run(self.target, Judging([name for name in oracles if name != LIVENESS]))
        self._lacks = left_out_for(self.target)

    def has(self, *names: str) -> bool:
        """True if the target lacks none of these, nor does without what few cores offer."""
        return not self._lacks.intersection(names)

    @property
    def forgets(self) -> bool:
        """True if the core may forget what is cached though it needs no blocks, by what the target says of it."""
        return EVICTS_MORE in self._run.designs

    @property
    def shows_tables(self) -> bool:
        """True if the tables are shown, or follow from answers."""
        return "tables" not in self._seen(self.shown)[1]

    def _seen(self, shown: Snapshot) -> tuple[Snapshot, frozenset[str]]:
        """What is shown, with hidden tables as far as they follow from answers, and what is hidden then."""
        hidden, tables = hidden_fields(self.target), self._run.rebuilt_tables
        return (shown, hidden) if tables is None else (shown._replace(tables=tables), hidden - {"tables"})

    def start(self, name: str, shape: Shape, *checks: Check) -> bool:
        """Begin a scenario with a new core of this shape. False if the target does not build it."""
        shape = adapted_shape(shape, left_out_for(self.target))
        self._lacks = in_shape(left_out_for(self.target), shape)
        self.scenario = Scenario(f"{name} ({_in_short(shape)})")
        self.report.scenarios.append(self.scenario)
        found = self._run.start(shape)
        outcome, shown = self.target.last
        if found is not None and found.is_our_bug:
            self.failed(found)
            raise End
        if found is not None and not self.target.answered:
            how = f"{found.observable}: {found.detail.splitlines()[0]}"
            self._say("wrong", "start", how, "an outcome and a snapshot", _LOST, found.observable)
            raise End
        if isinstance(outcome, Failed):
            self._note("left out", "start", came(outcome), "the target does not build this shape")
            return False
        self.shape, (self.shown, hidden) = shape, self._seen(shown)
        answer = Answer(None, outcome, self.shown, self.shown, shape, hidden, designs=self._run.designs)
        self._labels = LabelOrder()
        self._judge("start", "a fresh core", answer, checks, Done)
        return True

    def ask(
        self, operation: Operation, why: str, *checks: Check, outcome: type[Outcome] = Done, tight: bool = False
    ) -> Answer | None:
        """Ask for one operation, whose outcome must be of this kind. None if the target lacks it.

        Ends the scenario if the answer is wrong. `tight`: an engine that keeps blocks in reserve may refuse this.
        """
        wanted = adapted(operation, self._lacks)
        if wanted is None:
            kind = type(operation).__name__
            self._note("left out", in_words(operation), "", f"the target says that it lacks {kind}")
            return None
        if not allows(self._run.scene, wanted):
            self._note("left out", in_words(wanted), "", "not possible in the state that the target shows")
            raise End
        before = self.shown
        found = self._run.step(wanted)
        self.report.asked += 1
        if found is not None and found.is_our_bug:
            self.failed(found)
            raise End
        came_back, shown = self.target.last
        if found is not None and found.observable in LOST and not self.target.answered:
            how = f"{found.observable}: {found.detail.splitlines()[0]}"
            self._say("wrong", in_words(wanted), how, f"an answer; {why}", _LOST, found.observable)
            raise End
        outside = tuple(self._run.scene.state.outside)
        self.shown, hidden = self._seen(shown)
        answer = Answer(wanted, came_back, before, self.shown, self.shape, hidden, outside, self._run.designs)
        if tight and isinstance(came_back, Refused) and found is None:
            expected = f"Done, unless your engine keeps blocks in reserve: {why}"
            self._say("hint", in_words(wanted), came(came_back), expected, _TIGHT, "hint")
            raise End
        self._judge(in_words(wanted), why, answer, checks, outcome)
        if found is not None:
            expected = f"{found.observable} holds: {(found.detail or str(found)).splitlines()[0]}"
            lost_hit = found.observable == "S14"
            advice = f"show what the engine really has; {found.observable} is in docs/reference/contract.md"
            mistake = "no-hit" if lost_hit else found.observable
            self._say("wrong", in_words(wanted), came(came_back), expected, NO_HIT if lost_hit else advice, mistake)
            raise End
        return answer

    def _judge(self, asked: str, why: str, answer: Answer, checks: Sequence[Check], outcome: type[Outcome]) -> None:
        try:
            right_types(answer)
            right_kind(answer, outcome)
            expected: Sequence[Check] = (no_lists, only_blocks, *checks, sound_state, self._labels)
            for check in expected:
                check(answer)
        except Wrong as wrong:
            self._say("wrong", asked, came(answer.outcome), wrong.expected, wrong.advice, wrong.mistake)
            raise End from None
        self._note("ok", asked, came(answer.outcome), why)

    def failed(self, bug: Finding) -> None:
        """A line for an exception of our own."""
        place, advice = "; ".join(cause_lines(bug.cause)), "report this: it says nothing of the target"
        self.scenario.lines.append(Line("bug", "a bug of blockproof", place, "no exception of its own", advice, "bug"))

    def _note(self, verdict: Any, asked: str, came: str, why: str) -> None:
        self.scenario.lines.append(Line(verdict, asked, came, why))

    def _say(self, verdict: Any, asked: str, came: str, expected: str, advice: str, mistake: str) -> None:
        """A line with something to do, unless the same mistake was told already."""
        if mistake not in self.report.mistakes:
            self.scenario.lines.append(Line(verdict, asked, came, expected, advice, mistake))


_TIGHT = "nothing if it does; else compare the blocks that are missing with those that are free"
_LOST = "return failed(error) for an exception of the core; find out why a process ended or does not answer"


class _Recorded:
    """The target, which remembers its last answer as it came."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.name = target.name
        self.last: Any = (None, None)
        self.answered = False
        """True if the last question was answered by two values."""
        self.snapshots: list[Any] = []
        """All that was shown."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def _noted(self, answer: Any) -> Any:
        """The answer, remembered if it is one."""
        outcome, shown = answer
        self.last, self.answered = (outcome, shown), True
        self.snapshots.append(shown)
        return answer

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """As the target."""
        self.answered = False
        outcome, shown = self._noted(self._target.start(shape))
        return outcome, shown

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """As the target."""
        self.answered = False
        outcome, shown = self._noted(self._target.step(operation))
        return outcome, shown

    def close(self) -> None:
        """As the target."""
        self._target.close()


def _in_short(shape: Shape) -> str:
    """What matters of the shapes that scripts use."""
    words = [f"blocks of {shape.groups[0].block_size} tokens", f"{shape.num_blocks} of them with the null block"]
    words += [
        text for text, said in (("caching off", not shape.caching), ("events and statistics", shape.events)) if said
    ]
    return ", ".join(words)


def in_words(operation: Operation) -> str:
    """An operation as text, long prompts as the number of their tokens."""
    if isinstance(operation, Submit) and len(operation.prompt) > 12:
        text = operation_text(replace(operation, prompt=(0,)))
        return text.replace("prompt=(0,)", f"prompt of {len(operation.prompt)} tokens")
    return operation_text(operation)


def came(outcome: object) -> str:
    """An outcome as a target writes it."""
    if isinstance(outcome, Done):
        return f"Done({'' if outcome.value is None else repr(outcome.value)})"[:200]
    if isinstance(outcome, Refused):
        return "Refused()"
    if isinstance(outcome, Failed):
        frames = outcome.cause.frames if outcome.cause else ()
        place = f" ({frames[-1].file}, line {frames[-1].line})" if frames else ""
        return f"{outcome_text(outcome)}{place}"[:200]
    return repr(outcome)[:200]
