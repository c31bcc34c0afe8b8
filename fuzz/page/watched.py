"""A target that is watched while a trace is applied to it: every answer of it, and of the model beside it, is written
down as a change."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, cast

from msgspec.structs import replace

from ...model.attention import rules_for
from ...model.core import Model
from ...model.features.names import NamedState
from ...model.legal import allows, misuse
from ...model.ops import Done, Failed, Landed, OnRequest, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ..findings.oracle_names import TARGET
from ..findings.words import outcome_text
from ..opening.known_deviations import model_for
from ..reports.document import Change, Side, Step
from ..runs.lockstep import LockstepRun
from ..runs.model_looks import ModelLooks
from ..runs.run import Run
from ..targets.answers import outcome_and_snapshot, problem_with_answer
from ..targets.base import Target, copies_of, hidden_fields, is_told, likeness
from ..targets.block_ids import stray_copy, without_hidden
from ..targets.glance import Glancing
from ..targets.rule import model_answer
from .changes import Changes, RequestContents, names_of, visible_part
from .words import RequestNumbers, answer_words, cut, operation_words, step_text

MAX_STEP_TEXT = 400
"""Longest text of an operation, in characters."""


class ModelTarget:
    """The model as a target: what is watched where there is no other one."""

    name = "model"

    def __init__(self, core: str = "model") -> None:
        """`core`: the target whose known deviations the model has."""
        self._core = core

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a model."""
        self._shown = _ShownModel(model_for(self._core, shape))
        built = self._shown.model.construction
        return built, self._shown.last if isinstance(built, Done) else None

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Ask the model."""
        return self._shown.step(operation)

    def close(self) -> None:
        """Nothing is open."""


class _ShownModel:
    """A model of which each step is shown; where that is enough, only what the step can have changed is read."""

    def __init__(self, model: Model) -> None:
        self.model, self._looks, self._glances = model, ModelLooks(model), type(model) is Model
        self.last = self._looks.look() if isinstance(model.construction, Done) else None

    def takes(self, operation: Operation) -> bool:
        """True if the operation makes sense for it."""
        return allows(self.model, operation)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply the operation."""
        plain = self._glances and self.last is not None and not misuse(self.model, operation)
        outcome = model_answer(self.model, operation)
        if plain and self.last is not None and not isinstance(outcome, Failed):
            self.last = self._looks.glance(operation, self.last)
        else:
            self.last = self._looks.look()
        return outcome, self.last


class _ShownTarget:
    """Another target, to be shown beside the one that is watched: as far as it can show what it does."""

    def __init__(self, target: Target, shape: Shape) -> None:
        self._target, self._groups = target, len(shape.groups)
        outcome, snapshot = outcome_and_snapshot(target.start(shape))
        built = isinstance(outcome, Done) and problem_with_answer(outcome, snapshot, self._groups) is None
        self.last = snapshot if built else None

    def takes(self, operation: Operation) -> bool:
        """True as long as its answers have the right form."""
        return self.last is not None

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot | None]:
        """Ask the target."""
        outcome, snapshot = outcome_and_snapshot(self._target.step(operation))
        self.last = None if problem_with_answer(outcome, snapshot, self._groups) else snapshot
        return outcome, self.last


class _Line:
    """One side as it is written down."""

    def __init__(
        self, name: str, role: str, shape: Shape, requests: RequestNumbers, hidden: Collection[str] = ()
    ) -> None:
        self.changes = Changes(shape.num_blocks, requests, hidden)
        self.name, self.role = name, role
        self.begin = Change()
        self.steps: list[Change] = []
        self.hidden = sorted(hidden)
        self.ended = False
        """True once nothing of this side is written down any more."""
        self.alike = False
        """True as long as this side has shown what the other one has shown."""

    def start(self, snapshot: Snapshot) -> None:
        self.begin = self.changes.to(snapshot)

    def add(self, operation: Operation, outcome: Outcome | None, snapshot: Snapshot | None) -> Change:
        """Write down one answer; without a snapshot, which may be of the wrong form, its outcome alone."""
        return self._add(Change() if snapshot is None else self.changes.to(snapshot), operation, outcome)

    def add_beside(
        self, other: "_Line", operation: Operation, outcome: Outcome | None, snapshot: Snapshot | None
    ) -> Change:
        """The same, with the other side, which has made this step already, to compare with: of a large pool that takes
        less than to look for what has changed."""
        self.alike = self.alike and len(other.steps) == len(self.steps) + 1 and _same(snapshot, other.changes.last)
        if not self.alike:
            return self.add(operation, outcome, snapshot)
        self.changes.take_over(other.changes)
        return self._add(replace(other.steps[-1]), operation, outcome)

    def _add(self, change: Change, operation: Operation, outcome: Outcome | None) -> Change:
        change.outcome = "lost" if outcome is None else type(outcome).__name__.lower()
        change.answer = "no answer" if outcome is None else cut(_text_of(operation, outcome))
        self.steps.append(change)
        return change


def _same(one: object, other: object) -> bool:
    """True if they are equal; a target may show what cannot be compared."""
    try:
        return bool(one == other)
    except Exception:
        return False


def _text_of(operation: Operation, outcome: object) -> str:
    """The outcome in words; of what is none, what it is: a target may return anything."""
    try:
        return str(answer_words(operation, outcome))  # type: ignore[arg-type]
    except Exception:
        return f"a {type(outcome).__name__}"


def _plain(outcome: object) -> str:
    """The outcome as traces have it, to be compared."""
    try:
        return outcome_text(outcome)  # type: ignore[arg-type]
    except Exception:
        return f"a {type(outcome).__name__}"


class WatchedTarget:
    """Forwards everything to a target, and writes down what came of it. `run` must be set before it is started."""

    run: Run

    def __init__(self, target: Target, full_from: int = 0, other: Target | None = None) -> None:
        """`full_from`: from this step on the whole state is read each time, before it what a step can have changed, if
        target and run are content with that (`runs.judging`). `other`: a target to be shown beside it, in place of the
        model."""
        self._target, self._other = target, other
        self._full_from = full_from
        self.name = target.name
        self.shape: Shape | None = None
        """The shape of the last start."""
        self.construction: Outcome | None = None
        self.requests = RequestNumbers()
        self.steps: list[Step] = []
        self.lines: list[_Line] = []
        """The model, if there is one beside the target, and the target."""
        self.parted = -1
        """The first step in which a model that does not judge has answered otherwise; -1 if there is none."""
        self.parted_over: tuple[Operation, Outcome | None, Outcome | None]
        """That operation, with both answers."""
        self._answer: Outcome | None = None
        self._judged = False
        self._beside: _ShownModel | _ShownTarget | None = None
        self._pending: tuple[Operation, Outcome | None, Snapshot | None] | None = None
        self._named: dict[int, list[int]] = {}
        self._junctions: dict[str, int] = {}
        """What was written down last of names and of shared prefixes."""
        self._examined = 0
        """How many operations of the run were looked at for those that are no call on the target."""

    def __getattr__(self, name: str) -> Any:
        """What the target says about itself; nothing of it may be looked at past this record."""
        if name != "glance":
            return getattr(self._target, name)
        if not self._full_from or not hasattr(self._target, name):
            raise AttributeError(name)
        return self._glance

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Start the target, and what is written down."""
        self.shape, self.requests, self.steps, self.lines, self._pending = shape, RequestNumbers(), [], [], None
        self._named, self._junctions = {}, {}
        self._examined = 0
        outcome, snapshot = outcome_and_snapshot(self._target.start(shape))
        self.construction = outcome
        if isinstance(outcome, Done) and problem_with_answer(outcome, snapshot, len(shape.groups)) is None:
            self._open(shape, snapshot)
        return outcome, snapshot

    def _open(self, shape: Shape, snapshot: Snapshot | None) -> None:
        assert snapshot is not None
        self._contents = RequestContents(shape, rules_for(shape), self.requests)
        alone = isinstance(self._target, ModelTarget)
        self._judged = isinstance(self.run, LockstepRun)
        if self._other is not None:
            self._beside = _ShownTarget(self._other, shape)
            first, name, roles = self._beside.last, self._other.name, ("first", "second")
        else:
            self._beside = None if self._judged or alone else _ShownModel(model_for(likeness(self._target), shape))
            model = self.run.scene if self._judged else self._beside and self._beside.model
            has_one = isinstance(model, Model) and isinstance(model.construction, Done)
            first, name, roles = cast(Model, model).snapshot() if has_one else None, "model", ("model", "target")
        if first is not None:
            line = _Line(name, roles[0], shape, self.requests)
            line.start(first)
            self.lines.append(line)
        else:
            self._beside = None
        hidden = hidden_fields(self._target)
        line = _Line(self.name, "model" if alone else roles[1], shape, self.requests, hidden)
        snapshot = self._without_hidden(snapshot, hidden)
        line.start(snapshot)
        line.alike = bool(self.lines) and _same(snapshot, self.lines[0].changes.last)
        self.lines.append(line)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Ask the target. A model that judges has made the step already."""
        return self._asked(operation, lambda: self._target.step(operation))

    def _glance(
        self, operation: Operation, last: Snapshot, expected: Snapshot | None = None
    ) -> tuple[Outcome, Snapshot]:
        return self._asked(operation, lambda: cast(Glancing, self._target).glance(operation, last, expected))

    def _asked(self, operation: Operation, ask: Callable[[], object]) -> tuple[Outcome, Snapshot]:
        self._settle_pending()
        self._settle_untold(len(self.run.operations) - 1)
        if self._judged and self.lines:
            self._begin(operation, self.run.outcomes[-1])
        if isinstance(self.run, LockstepRun) and len(self.run.operations) >= self._full_from:
            self.run.full_look_every = 1  # from the next step on
        self._pending = (operation, None, None)
        outcome, snapshot = outcome_and_snapshot(ask())
        self._pending = (operation, outcome, snapshot)
        return outcome, snapshot  # type: ignore[return-value]  # what is wrong with it the run will say

    def close(self) -> None:
        """Close the target."""
        self._target.close()

    def settle(self) -> None:
        """Write down the last operations, now that the run has followed them."""
        self._settle_pending()
        self._settle_untold(len(self.run.operations))

    def _settle_untold(self, end: int) -> None:
        """Write down operations of the run, up to this one, that are no calls on the target: they change nothing."""
        untold = [one for one in self.run.operations[self._examined : end] if not is_told(self._target, one)]
        self._examined = max(self._examined, end)
        for operation in untold if self.lines else ():
            self._write_step(operation, Done())
            first, last = self.lines[0], self.lines[-1]
            if not first.ended:
                first.add(operation, Done(), first.changes.last)
            if last is not first:
                last.add_beside(first, operation, Done(), last.changes.last)

    def _settle_pending(self) -> None:
        if self._pending is None or not self.lines:
            return
        (operation, outcome, snapshot), self._pending = self._pending, None
        if not self._judged:
            self._begin(operation, outcome)
        target, model = self.lines[-1], self.lines[0]
        lost = self.run.found is not None and self.run.found.oracle == TARGET  # its answer may be of any form
        shown = None if lost or snapshot is None else self._without_hidden(snapshot, target.hidden)
        if lost or target is model:
            change = target.add(operation, outcome, shown)
        else:
            change = target.add_beside(model, operation, outcome, shown)
        if target is model or not target.alike:
            self._name_contents(target)
        followed = self._beside is not None and self.parted < 0 and not self.lines[0].ended
        if followed and (self.lines[0].steps[-1].outcome, _plain(self._answer)) != (change.outcome, _plain(outcome)):
            self.parted, self.parted_over = len(self.steps) - 1, (operation, self._answer, outcome)

    def _without_hidden(self, shown: Snapshot, hidden: Collection[str]) -> Snapshot:
        """What the target shows, as far as it says that it can be relied on; references counted from the tables."""
        assert self.shape is not None
        if not hidden:
            return shown
        seen = without_hidden(shown, self.shape.num_blocks, hidden)
        if "tables" in hidden:
            seen = seen._replace(tables=[{} for _ in seen.tables])
        if "ref_cnt" not in hidden:
            return seen
        outside = self.run.scene.state.outside if self.lines else ()
        held = Counter(block for tables in seen.tables for table in tables.values() for block in table)
        held.update(outside)
        counts = [0, *(held[block] for block in range(1, self.shape.num_blocks))]
        return seen._replace(ref_cnt=counts[: self.shape.num_blocks])

    def _begin(self, operation: Operation, outcome: Outcome | None) -> None:
        """Write down what was asked, and the answer of the model."""
        self._write_step(operation, outcome)
        model = self.lines[0]
        if isinstance(self.run, LockstepRun):
            model.add(operation, outcome, self.run.model_shows)
        elif self._beside is not None and not model.ended and self._beside.takes(operation):
            self._answer, shown = self._beside.step(operation)
            model.add(operation, self._answer, shown)
            self._write_names(self.steps[-1])
        else:
            model.ended = True
        if not model.ended:
            self._name_contents(model)

    def _write_step(self, operation: Operation, outcome: Outcome | None) -> None:
        """Write down what was asked, and what is known of the requests then."""
        step = Step(type(operation).__name__, cut(step_text(operation), MAX_STEP_TEXT), "")
        step.words = cut(operation_words(operation), MAX_STEP_TEXT)
        step.request = self.requests(operation.request) if isinstance(operation, OnRequest) else -1
        step.blocks = [*getattr(operation, "blocks", ())]
        scene = self.run.scene
        self._contents.follow(step, operation, outcome, scene.requests)
        copied = scene.copied if isinstance(scene, Model) else copies_of(self._target)
        if type(operation) is not Landed and stray_copy(copied, scene.shape.num_blocks) is None:
            step.copies = [block for pair in copied for block in pair]
        self.steps.append(step)
        self._write_names(step)

    def _write_names(self, step: Step) -> None:
        """Write down which blocks are named in part or several times, and where shared prefixes go on: what a model
        that goes by the rule of today knows of them."""
        scene = self.run.scene
        model = self._beside.model if isinstance(self._beside, _ShownModel) else scene
        if not isinstance(model, Model) or not isinstance(model.state, NamedState):
            return
        named = names_of(model.state, [rule.b for rule in model.rules])
        gone = [[block, 0, 0, 0] for block in self._named.keys() - named.keys()]
        new = [[block, *now] for block, now in named.items() if self._named.get(block) != now]
        step.names, self._named = [number for row in (*gone, *new) for number in row], named
        ends = {name: request.junction for name, request in model.requests.items()}
        changed = {name: end for name, end in ends.items() if end != self._junctions.get(name, 0)}
        step.junctions, self._junctions = [n for name, end in changed.items() for n in (self.requests(name), end)], ends

    def _name_contents(self, line: _Line) -> None:
        last = line.steps[-1]
        if line.changes.last is not None:
            last.named = self._contents.naming(line.changes.last, last.label)

    def sides(self) -> list[Side]:
        """All sides, the model first. A change that the first side has made as well is left out of the others."""
        sides: list[Side] = []
        for line in self.lines:
            first = self.lines[0].steps if sides else []
            alike = [one == other for one, other in zip(line.steps, first, strict=False)]
            steps = [None if step < len(alike) and alike[step] else one for step, one in enumerate(line.steps)]
            sides.append(Side(line.name, line.role, line.begin, steps, line.hidden))
        return sides

    @property
    def pair(self) -> tuple[str, str]:
        """The names of the target beside this one, or of the model, and of this one."""
        return ("model" if self._other is None else self._other.name, self.name)

    def first_difference(self) -> int | None:
        """The first step after which the two sides show something different, or have answered differently; -1 if they
        do from the construction on, None if they never do."""
        first, second = self.lines
        hidden = {*first.hidden, *second.hidden}

        def differ(one: Change, other: Change) -> bool:
            return one != other and visible_part(one, hidden) != visible_part(other, hidden)

        if differ(first.begin, second.begin):
            return -1
        pairs = enumerate(zip(first.steps, second.steps, strict=False))
        ended = min(len(first.steps), len(second.steps))
        unlike = None if len(first.steps) == len(second.steps) else ended
        return next((step for step, (one, other) in pairs if differ(one, other)), unlike)

    def shown_to_model(self, shown: Snapshot, model: Snapshot) -> Snapshot:
        """What the target shows, with what it hides taken from the model: that is not compared."""
        hidden = {name: getattr(model, name) for name in Snapshot._fields if name in self.lines[-1].hidden}
        return shown._replace(**hidden)

    def changes(self) -> list[Change]:
        """Those of the target."""
        return self.lines[-1].steps

    def snapshots(self) -> list[Snapshot | None]:
        """What each side shows last."""
        return [line.changes.last for line in self.lines]

    def nodes(self) -> list[Any]:
        """The contents so far."""
        return self._contents.nodes if self.lines else []

    def not_built(self) -> str:
        """Why the target has no core of this shape, in words; empty if it has one."""
        return outcome_text(self.construction) if isinstance(self.construction, Failed) else ""
