"""Settles many theorems for many cores, in processes of their own, and asks the second solver about each obligation."""

import hashlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from typing import Any

from .cross_check import together
from .verdict import Verdict

SETTLE_S = 900.0
"""A theorem that takes longer counts as undecided, as it seems not to end; its process is ended. It takes a few seconds
at most, and what bounds it are steps."""
BRIEFLY_S = 0.3
"""For a question with only those hypotheses that the first solver took."""
TOGETHER = 12
"""So many short questions are asked as one at first."""
SHORT = 2000
"""Characters of a short question."""
PATIENCE_S = 120.0
"""An answer of the second solver, whose steps are counted, may take so long: other processes may take its time."""
SAID_MOST = 4096
"""Bytes of what a process has written to stderr that are looked at when it is lost."""


@dataclass(frozen=True)
class Interpreter:
    """Where theorems about a core are settled."""

    subject: str
    """`model`, `impl`, `vllm==0.23.0`."""
    python: str = sys.executable
    environment: Mapping[str, str] | None = None
    arguments: tuple[str, ...] = ()

    @property
    def process(self) -> object:
        """Equal for places that share a process: its solver then answers a question once that both lead to."""
        return self.python, None if self.environment is None else frozenset(self.environment.items()), self.arguments


@dataclass(frozen=True)
class Task:
    """One theorem for some cores. Its negative controls depend on no core: the first that has it refutes them."""

    theorem: str
    places: tuple[Interpreter, ...]


@dataclass
class Result:
    """A verdict, and what the second solver says to it."""

    verdict: Verdict
    confirmed: int = 0
    """Questions to which the second solver gave the same answer."""
    disputed: list[tuple[str, str]] = field(default_factory=list)
    """The others: the question as SMT-LIB, and its answer."""
    opinion_seconds: float = 0.0


def _environment(where: Interpreter) -> dict[str, str]:
    """The variables of a process. Python without asserts would leave out what a function refuses."""
    given = os.environ if where.environment is None else where.environment
    return {name: value for name, value in given.items() if name != "PYTHONOPTIMIZE"}


class WorkerLostError(Exception):
    """The process ended or gave no answer in time; says which, and what the process said last."""


class Worker:
    """A process that answers one request after the other."""

    def __init__(self, where: Interpreter) -> None:
        self._said = TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [where.python, "-P", "-m", "blockproof.proofs.worker", *where.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=_environment(where),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._read = b""

    def ask(self, request: Mapping[str, object], seconds: float) -> Any:
        """The answer. WorkerLostError if there is none within so many seconds; the process has then been ended."""
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except OSError as error:
            raise self._lost("the process has ended") from error
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], seconds)
            data = os.read(self._answers.fileno(), 1 << 16) if ready else b""
            if not data:
                raise self._lost("the process has ended" if ready else f"no answer within {seconds:g} s")
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    def _lost(self, how: str) -> WorkerLostError:
        """The error, with the last line that the process wrote to stderr. Ends the process."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - SAID_MOST))
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        self.close()
        return WorkerLostError(": ".join([how, *lines[-1:]]))

    def close(self) -> None:
        """End the process; does nothing more if it has ended already."""
        self._process.kill()
        self._process.wait()
        self._said.close()
        with suppress(BrokenPipeError):  # closing writes what is still buffered, and nobody is left to read it
            self._requests.close()
        self._answers.close()


Workers = dict[object, Worker]
"""By `Interpreter.process`."""


def alone(theorem: str, where: Interpreter, seconds: float, with_controls: bool = True) -> Verdict:
    """The verdict of a process that settles nothing else."""
    workers: Workers = {}
    try:
        return _answer(theorem, where, seconds, with_controls, workers)
    finally:
        for worker in workers.values():
            worker.close()


def _answer(theorem: str, where: Interpreter, seconds: float, with_controls: bool, workers: Workers) -> Verdict:
    request = {"settle": theorem, "subject": where.subject, "seconds": seconds, "controls": with_controls}
    try:
        answer = _worker(where, workers).ask(request, SETTLE_S)
    except WorkerLostError as lost:
        workers.pop(where.process, None)
        answer = {"error": str(lost)}
    if "error" in answer:
        return Verdict(theorem, where.subject, "undecided", message=answer["error"])
    return Verdict(**answer)


def _worker(where: Interpreter, workers: Workers) -> Worker:
    if where.process not in workers:
        workers[where.process] = Worker(where)
    return workers[where.process]


class Campaign:
    """Settles tasks with `jobs` processes at once. `seconds` bounds each question to a solver."""

    def __init__(self, jobs: int, seconds: float, cross_check: bool) -> None:
        self.seconds = seconds
        self.cross_check = cross_check
        self._jobs = jobs
        self._opinions: dict[str, str] = {}
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._stopped = False
        self._failures: list[Exception] = []

    def run(self, tasks: Sequence[Task], done: Callable[[Result], None]) -> None:
        """Settle all; `done` is told each result, in the order in which they are ready, one at a time.

        Returns once every task has its result. What goes wrong in a thread is raised here, so that no result is missing
        without a word.
        """
        waiting: SimpleQueue[Task] = SimpleQueue()
        for task in tasks:
            waiting.put(task)
        threads = [threading.Thread(target=self._work, args=(waiting, done), daemon=True) for _ in range(self._jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)  # so that Ctrl-C is noticed
        finally:
            self._stopped = True
            for worker in list(self._workers):
                worker.close()
        if self._failures:
            raise self._failures[0]

    def _work(self, waiting: "SimpleQueue[Task]", done: Callable[[Result], None]) -> None:
        try:
            self._settle_all(waiting, done)
        except Exception as error:
            if not self._stopped:  # interrupted: its process was ended under its hands
                self._failures.append(error)

    def _settle_all(self, waiting: "SimpleQueue[Task]", done: Callable[[Result], None]) -> None:
        workers: Workers = {}
        while not self._stopped:
            try:
                task = waiting.get_nowait()
            except Empty:
                break
            with_controls = True
            for place in task.places:
                result = Result(self._settled(task.theorem, place, with_controls, workers))
                with_controls = with_controls and result.verdict.status == "unavailable"
                if self.cross_check:
                    self._confirm(result, workers)
                if self._stopped:
                    return  # interrupted: what came of it is that its process was ended
                with self._lock:
                    done(result)

    def _settled(self, theorem: str, where: Interpreter, with_controls: bool, workers: Workers) -> Verdict:
        """The verdict. An undecided one is asked for again in a new process: what the solver tries first, and so what
        it can decide within its steps, depends on what its process was asked before."""
        first = where.process not in workers
        self._begin(where, workers)
        verdict = _answer(theorem, where, self.seconds, with_controls, workers)
        if verdict.status != "undecided" or first or self._stopped:
            return verdict
        return alone(theorem, where, self.seconds, with_controls)

    def _begin(self, where: Interpreter, workers: Workers) -> Worker:
        """The process for this place, which ends with the campaign."""
        first = where.process not in workers
        worker = _worker(where, workers)
        if first:
            self._workers.append(worker)
        return worker

    def _confirm(self, result: Result, workers: Workers) -> None:
        """Both solvers must agree: on what is proved, and on what can happen."""
        start = time.perf_counter()
        questions = [(text, "unsat") for text in result.verdict.smtlib]
        questions += [(text, "sat") for text in result.verdict.satisfiable]
        self._agree_on_many(result, workers)
        for text, expected in dict.fromkeys(questions):
            brief = result.verdict.needed.get(text, text)
            said = self._opinion(brief, workers, BRIEFLY_S) if brief != text else ""
            if said != expected:  # fewer hypotheses are quicker to read, but some help
                said = self._opinion(text, workers, self.seconds)
            if said == expected:
                result.confirmed += 1
            else:
                result.disputed.append((text, said))
        result.opinion_seconds = time.perf_counter() - start

    def _agree_on_many(self, result: Result, workers: Workers) -> None:
        """Ask about short questions together, whether any can be answered `sat`: much of the time goes into beginning.
        What the second solver does not agree on so is asked one by one."""
        briefs = [result.verdict.needed.get(text, text) for text in result.verdict.smtlib]
        new = {self._key(text): text for text in briefs if len(text) <= SHORT and self._key(text) not in self._opinions}
        keys = list(new)
        for begin in range(0, len(keys), TOGETHER):
            some = keys[begin : begin + TOGETHER]
            text = together([new[key] for key in some]) if len(some) > 1 else ""
            if text and self._opinion(text, workers, BRIEFLY_S) == "unsat":
                self._opinions |= dict.fromkeys(some, "unsat")

    @staticmethod
    def _key(text: str) -> str:
        """The same for a question under another name."""
        return hashlib.sha256(text.partition("\n")[2].encode()).hexdigest()

    def _opinion(self, text: str, workers: Workers, seconds: float) -> str:
        """What the second solver says; the same question under another name is not asked again."""
        key = self._key(text)
        if key not in self._opinions:
            opinion = Interpreter("second opinion")
            try:
                request = {"opinion": text, "seconds": seconds}
                said = self._begin(opinion, workers).ask(request, 10 * seconds + PATIENCE_S)
            except WorkerLostError as lost:
                workers.pop(opinion.process, None)
                said = {"error": str(lost)}
            self._opinions[key] = f"unknown: {said['error']}" if isinstance(said, dict) else str(said)
        return self._opinions[key]
