"""A job of continuous integration: replay what was found before, then look for something new, and tell the runner.

The log shows the commands, so that each can be repeated elsewhere. GitHub is told more than the exit code: annotations,
a summary of the job, and outputs. Nothing is drawn: without a seed, the commit decides.
"""

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from ..engines.story_pages import page_beside_story
from ..findings.words import plural
from ..findings.writing import write_file
from ..opening.oracles import suited_to
from ..opening.targets import open_target
from ..page.trace_page import KeptTrace, page_beside
from ..reports.cases import ResultCase
from ..reports.corpus import CorpusDocument
from ..reports.formats import junit, markdown
from ..targets.base import Target, TargetUnavailableError, close_target
from ..traces.files import TraceError
from ..traces.judges import judges_for
from ..traces.reproduction import safe_name
from .corpus import Outcome, read_case
from .runner import Runner, runner_here
from .story_corpus import StoryAgain, read_story_case

MOST_INTERRUPTIONS = 3
"""Ctrl-C more often than that, and what is waited for is killed."""
OPERATIONS, STEPS = 100_000, 20_000
"""How many operations, or steps of an engine, are made if no limit is given. Not seconds: a busy runner tests as much.
"""
SEED_DIGITS = 8
"""The seed is the number that these first hexadecimal digits of the commit write."""


@dataclass(frozen=True)
class CiJob:
    """What is to be done; the options of `blockproof ci`."""

    target: str
    corpus: Path | None = None
    """Folder of traces that must show nothing."""
    report: Path = Path("blockproof-report")
    """Folder for JUnit files, summary and findings."""
    operations: int | None = None
    seconds: float | None = None
    seed: int | None = None
    attention: str | None = None
    oracle: str | None = None
    known: Path | None = None
    floors: Path | None = None
    isolate: bool = True
    engine: bool = False
    """The target is an engine: it is simulated, and the corpus has stories."""

    @property
    def corpus_junit(self) -> Path:
        """Where the corpus is reported, a test case for each trace."""
        return self.report / "corpus.xml"

    @property
    def fuzz_junit(self) -> Path:
        """Where `blockproof fuzz`, or `simulate`, reports."""
        return self.report / "fuzz.xml"

    @property
    def fuzz_summary(self) -> Path:
        """The same as Markdown."""
        return self.report / "fuzz.md"

    def command(self, seed: int) -> list[str]:
        """The arguments of `blockproof` that fuzz, or simulate."""
        limit, usual = self.operations, STEPS if self.engine else OPERATIONS
        options = {
            "target": self.target,
            "attention": self.attention,
            "oracle": self.oracle,
            "seed": seed,
            "steps" if self.engine else "operations": usual if limit is None and self.seconds is None else limit,
            "seconds": self.seconds,
            "known": self.known,
            "floors": self.floors,
            "out": self.report / "findings",
            "junit": self.fuzz_junit,
            "write": self.fuzz_summary,
        }
        words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
        if self.engine:
            return ["simulate", *words]
        return ["fuzz", *words, "--isolate" if self.isolate else "--no-isolate"]


def seed_of_commit(environ: Mapping[str, str]) -> int:
    """The seed for the commit that is tested: of the runner's variables, else of git. ValueError if there is none."""
    commit = environ.get("GITHUB_SHA") or environ.get("CI_COMMIT_SHA")
    if not commit:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        commit = asked.stdout.strip()
    try:
        return int(commit[:SEED_DIGITS], 16)
    except ValueError:
        raise ValueError(
            "there is no commit to take the seed from: no git repository is here, and neither GITHUB_SHA nor"
            " CI_COMMIT_SHA is set; say --seed N, any number: the same one makes the same runs"
        ) from None


def run(job: CiJob, environ: Mapping[str, str] = os.environ, say: Callable[[str], None] = print) -> int:
    """Do the job. Returns the exit code: of `blockproof fuzz`, or 1 if a trace of the corpus shows something.

    Then nothing is fuzzed. ValueError without a seed and a commit, and for a target's name that has no known form;
    TraceError for a broken trace; TargetUnavailableError if the target cannot be started.
    """
    number = seed_of_commit(environ) if job.seed is None else job.seed
    runner = runner_here(environ, say)
    job.report.mkdir(parents=True, exist_ok=True)
    for path in (job.corpus_junit, job.fuzz_junit, job.fuzz_summary):
        path.unlink(missing_ok=True)  # of an earlier job in the same folder
    runner.output("seed", str(number))
    runner.output("report", str(job.report.resolve()))
    runner.output("artifact", artifact_name(job, number, environ))
    try:
        if job.corpus is not None and _corpus_fails(job, runner, say):
            return 1
        return _fuzz(job, number, runner)
    except (TargetUnavailableError, TraceError, ValueError) as error:
        _nothing_tested(str(error), job, runner)
        raise


def artifact_name(job: CiJob, seed: int, environ: Mapping[str, str]) -> str:
    """A name that every file system takes, different for each job of a run, its matrix and its repetitions."""
    places = [environ.get(name, "") for name in ("GITHUB_JOB", "RUNNER_OS", "GITHUB_RUN_ATTEMPT")]
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    # The target last: it may be long, and is what is cut off.
    return safe_name("-".join(part for part in ("blockproof", *places, python, str(seed), job.target) if part))


def _corpus_fails(job: CiJob, runner: Runner, say: Callable[[str], None]) -> bool:
    """Replay the corpus and report it. True if something shows."""
    assert job.corpus is not None
    if not job.corpus.is_dir():
        raise ValueError(f"{job.corpus}: no such folder of traces; make it, or leave --corpus out")
    count, nouns = len([*job.corpus.glob("*.json")]), ("story", "stories") if job.engine else ("trace", "traces")
    runner.group(f"{plural(count, *nouns)} from {job.corpus}, which must show nothing")
    outcomes = _replayed(job.corpus, job)
    for outcome in outcomes:
        say(f"{'FAILED' if outcome.failed else 'passed'}  {outcome.case.path}  {outcome.headline}".rstrip())
        if outcome.failed:
            say(textwrap.indent("\n".join(outcome.lines()), "    "))
    runner.end_group()
    for outcome in outcomes:
        if outcome.failed:
            text = f"{outcome.text}\nrepeat it: {outcome.case.command}"
            runner.error(outcome.headline, text, str(outcome.case.path))
    document = CorpusDocument(f"corpus {job.target}", nouns, [_case(one) for one in outcomes])
    write_file(job.corpus_junit, junit(document))
    runner.summarize(markdown(document))
    return any(outcome.failed for outcome in outcomes)


def _replayed(corpus: Path, job: CiJob) -> Sequence[Outcome | StoryAgain]:
    """What each case shows, on a target that is opened once, or on the engine."""
    if job.engine:
        return _replayed_stories(corpus, job)
    cases = [read_case(path, job.target) for path in sorted(corpus.glob("*.json"))]
    if not cases:
        return []
    target = open_target(job.target, isolate=job.isolate)
    try:
        outcomes = [case.run(target) for case in cases]
        for outcome in outcomes:
            if outcome.replayed.finding is not None:
                _write_page(outcome, target, job)
        return outcomes
    finally:
        close_target(target)


def _write_page(outcome: Outcome, target: Target, job: CiJob) -> None:
    """The page of a trace of the corpus that shows something: in the folder of the report, which is attached."""
    case = outcome.case
    judges = judges_for(case.file, lambda: suited_to(case.spec, target), case.oracles)
    page_beside(case.file, target, judges, KeptTrace(job.report / "corpus" / case.path.name, case.command))


def _replayed_stories(corpus: Path, job: CiJob) -> list[StoryAgain]:
    outcomes = [read_story_case(path, job.target).run() for path in sorted(corpus.glob("*.json"))]
    for one in outcomes:
        if one.outcome.found:
            path = one.case.path
            page_beside_story(path, print, job.target, job.report / "corpus" / f"{path.stem}.html")
    return outcomes


def _case(outcome: Outcome | StoryAgain) -> ResultCase:
    """A test case of the corpus."""
    text = "\n".join([str(outcome.case.path), "", *outcome.lines()])
    return ResultCase("corpus", outcome.case.path.stem, [(outcome.headline, text)] if outcome.failed else [])


def _report(job: CiJob, runner: Runner) -> bool:
    """Hand on what a search has written. True if there are failures in it."""
    if job.fuzz_summary.exists():
        runner.summarize(job.fuzz_summary.read_text(encoding="utf-8"))
    failures = _failures(job.fuzz_junit) if job.fuzz_junit.exists() else []
    for failure in failures:
        runner.error(failure.get("message", ""), failure.text or "", source_of(job.target))
    return bool(failures)


def _fuzz(job: CiJob, seed: int, runner: Runner) -> int:
    """Run `blockproof fuzz`, or `simulate`, in a process of its own, and report what it says."""
    words = job.command(seed)
    runner.group(f"$ {shlex.join(['blockproof', *words])}")
    command = [sys.executable, "-P", "-m", f"{__package__.split('.')[0]}.fuzz.cli", *words]
    sys.stdout.flush()
    code, said = _done(command)
    sys.stderr.write(said)
    for story in sorted((job.report / "findings").glob("*.json")) if job.engine else ():
        if not story.with_suffix(".html").exists():
            page_beside_story(story, print, job.target)
    runner.end_group()
    if not _report(job, runner) and code:
        problem = (said.strip().splitlines() or [f"blockproof {words[0]}: exit status {code}"])[-1]
        _nothing_tested(problem, job, runner)
    return code


def _done(command: Sequence[str]) -> tuple[int, str]:
    """The exit code of a command of ours and what it says on stderr. What interrupts this process interrupts it, and
    its report is waited for."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for _ in range(MOST_INTERRUPTIONS):
        try:
            return process.wait(), process.communicate()[1]
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
    process.kill()
    return process.wait(), process.communicate()[1]


def _nothing_tested(problem: str, job: CiJob, runner: Runner) -> None:
    """Say that the job has come to nothing, in one line."""
    runner.error(problem, problem, source_of(job.target))
    runner.summarize(f"## blockproof: nothing tested\n\n{problem}\n")


def _failures(junit: Path) -> list[ElementTree.Element]:
    """What failed. A run that a finding has ended need not have reached its floors: those are left out then."""
    cases = [case for case in ElementTree.parse(junit).iter("testcase") if case.find("failure") is not None]
    worst = [case for case in cases if case.get("classname") != "floors"] or cases
    return [failure for case in worst for failure in case.iter("failure")]


def source_of(target: str) -> str | None:
    """The file, below the current folder, that a target of one's own stands in; None if that is not known."""
    module = target.rpartition(":")[0]
    named = module if module.endswith(".py") else f"{module.replace('.', '/')}.py"
    places = (Path(named), Path("src", named), Path(named.removesuffix(".py"), "__init__.py"))
    return next((path.as_posix() for path in places if module and path.is_file()), None)
