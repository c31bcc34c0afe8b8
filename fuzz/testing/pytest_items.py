"""What the pytest plugin collects: a test for each file of a finding, and those that look for new ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..configuration.findings import ConfigurationFinding, finding_text, read_finding
from ..configuration.fuzzing import ask_recorded
from ..engines.fuzzing import FuzzOutcome, FuzzTask, fuzz
from ..engines.plan import Plan
from ..opening.targets import open_calculator
from ..planning.shipped import QUESTIONS, is_of_real_bug
from ..reports.vacuity import vacuity
from ..runs.open_run import open_run
from ..targets.base import TargetUnavailableError, adapted_shape, lacking
from ..traces.files import STORY, TraceError, other_form
from ..workload.draw import SeededDraw
from ..workload.shapes import ATTENTION, EVERY_ATTENTION, draw_shape
from .corpus import CorpusCase, read_case
from .pytest_options import chosen_seed
from .pytest_shared import MARK, BlockproofItem, shared, shortest
from .pytest_stories import SimulateItem, StoryItem
from .story_corpus import read_story_case

SHAPES_TRIED = 100
"""So many shapes of an attention type are offered to a target before it counts as one that builds none."""


class TargetItem(BlockproofItem):
    """A test of a target."""

    def setup(self) -> None:
        """Opens the target, where that has not been done."""
        try:
            self.core = shared(self.config).opened(self.spec)
        except TargetUnavailableError as error:
            pytest.fail(str(error), pytrace=False)


class TraceModule(pytest.File):
    """A file of a finding: a trace, a story of an engine, or, among the real bugs, a question about a configuration."""

    def collect(self) -> Iterator[pytest.Item]:
        """One test: the trace or story is replayed, the question asked. CollectError, in one line, if it cannot be
        read."""
        ours, path = shared(self.config), shortest(self.path)
        is_real = is_of_real_bug(self.path)
        try:
            if is_real and self.path.parent.name == QUESTIONS:
                yield QuestionItem.from_parent(self, name="ask", question=read_finding(path))
                return
            if other_form(self.path) == STORY:
                engine = ours.target if ours.engine else None
                yield StoryItem.from_parent(self, name="replay", case=read_story_case(path, engine))
                return
            if ours.engine:
                problem = "is the trace of a target; replay it without --blockproof-engine"
                raise TraceError(str(path), "", problem)
            case = read_case(path, ours.target, ours.oracles_for(ours.target or "impl"), is_real)
        except TraceError as error:
            raise self.CollectError(str(error)) from None
        yield TraceItem.from_parent(self, name="replay", case=case)


class TraceItem(TargetItem):
    """A trace, replayed: it must show nothing."""

    def __init__(self, *, case: CorpusCase, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]  # name and parent, as pytest passes them
        self.case = case
        self.spec = case.spec
        self.label = f"replay of {case.path}"
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Replay the trace."""
        outcome = self.case.run(self.core)
        if self.case.for_any and outcome.says_nothing:
            pytest.skip(f"{self.spec} builds no core of this shape, or has none of these operations")
        self.user_properties += [("operations", outcome.operations), ("repeat", self.case.command)]
        if outcome.failed:
            self.fail(outcome.lines())


class QuestionItem(pytest.Item):
    """A question about a configuration, asked again: the target must answer as the model does."""

    def __init__(self, *, question: ConfigurationFinding, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]  # as above
        self.question = question
        self.add_marker(MARK)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test is, no line, and its label."""
        return self.path, None, f"question of {shortest(self.path)}"

    def runtest(self) -> None:
        """Ask it. Skipped for a target without configuration arithmetic."""
        spec = shared(self.config).target or ""
        try:
            calculator = open_calculator(spec)
        except (ValueError, TargetUnavailableError) as error:
            pytest.skip(f"{spec} answers no questions about configurations: {error}")
        try:
            found = ask_recorded(self.path, self.question, calculator)
        finally:
            calculator.close()
        if found is not None:
            pytest.fail(finding_text(found), pytrace=False)


class SearchModule(pytest.Collector):
    """Parent of the tests that look for something new; it stands for no file."""

    def collect(self) -> Iterator[pytest.Item]:
        """A test for each attention type; of an engine one for all that it has, unless some were asked for."""
        ours = shared(self.config)
        if ours.engine:
            for name in ours.attention or ("",):
                yield SimulateItem.from_parent(self, name=f"simulate[{name}]" if name else "simulate", attention=name)
            return
        for name in ours.attention or ATTENTION:
            yield FuzzItem.from_parent(self, name=f"fuzz[{name}]", attention=name)


def search_items(session: pytest.Session) -> list[pytest.Item]:
    """The tests that look for something new: the same names in every process."""
    parent = SearchModule.from_parent(session, name="blockproof", nodeid="blockproof")
    return [item for item in parent.collect() if isinstance(item, pytest.Item)]


class FuzzItem(TargetItem):
    """One attention type, fuzzed for some seconds: nothing must be found."""

    def __init__(self, *, attention: str, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]  # as above
        self.attention = attention
        self.spec = shared(self.config).target or ""
        self.label = f"fuzzing {attention}"
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Fuzz, and shrink what is found. Skipped if the target builds no such core and this one was not asked for."""
        ours = shared(self.config)
        oracles = ours.oracles_for(self.spec, self.core)
        seed = chosen_seed(self.config)
        plan = Plan(seed, ours.seconds, attention=(self.attention,), oracles=oracles, known=ours.known)
        if not self._is_built(plan):
            problem = f"{self.spec} builds no core with {self.attention}"
            if ours.attention:
                self.fail(
                    [f"tests nothing: {problem}, which was asked for; look at what start does, or ask for others"]
                )
            pytest.skip(problem)
        known_file = str(shortest(ours.known_file)) if ours.known_file else ""
        task = FuzzTask(self.spec, "random", plan, isolate=ours.isolate, known_file=known_file)
        outcome = fuzz(task, self.core, ours.out, {}, print)
        self.user_properties += [("operations", outcome.done.operations), ("repeat", outcome.repeat)]
        if outcome.done.finding is not None:
            self.fail(self._failure(outcome))
        if outcome.done.interrupted:
            raise KeyboardInterrupt
        if empty := vacuity(outcome.done).problem:
            self.fail([f"tests nothing: {empty}", f"repeat the search: {outcome.repeat}"])

    def _is_built(self, plan: Plan) -> bool:
        """False if the target refuses all shapes of a good many."""
        run = open_run(self.core, plan.judging())
        for number in range(SHAPES_TRIED):
            shape = draw_shape(SeededDraw(f"{plan.seed}/{number}"), EVERY_ATTENTION[self.attention])
            if run.start(adapted_shape(shape, lacking(self.core))) is not None or run.built:
                return True
        return False

    def _failure(self, outcome: FuzzOutcome) -> list[str]:
        """What was found: numbered steps with what they change, and where the files are."""
        again = [f"repeat the search: {outcome.repeat}"]
        if outcome.kept is None or outcome.kept.shrunk is None:
            return [str(outcome.done.finding), *outcome.lines()]
        case = read_case(outcome.kept.files.trace, self.spec)
        page = [f"page: {outcome.kept.page}"] if outcome.kept.page else []
        return [*case.run(self.core).lines(), f"trace: {case.path}", *page, *again]
