"""What is made malformed, and which command is given it: trace files, replies of a program, configurations, arguments,
reports and checkpoints.

Each kind has `words`, the arguments of a command that is given a malformed one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from typing import TypeAlias
from unittest.mock import patch

from blockproof.fuzz.cli.main import app
from blockproof.fuzz.configuration.check import draw_case
from blockproof.fuzz.configuration.findings import LOCKSTEP, ConfigurationFinding, as_document
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.ops_json import to_json
from blockproof.fuzz.opening.process import Process
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.traces.trace_file import FoundBy, FoundWhat, TraceFile, dump_trace, read_trace
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import Operation, Outcome
from blockproof.model.snapshot import Snapshot
from typer.main import get_command

from .malformed import TEXTS, damaged, spoiled
from .malformed_reports import Checkpoints, Reports

ROOT = Path(__file__).resolve().parents[2]
LONG = 2**20
"""Blocks times operations that take longer than a second."""


class Traces:
    """Trace files, for `replay`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "trace.json"
        self.whole = [dump_trace(TraceFile(drawn_trace(seed, name), "impl")) for seed, name in enumerate(ATTENTION)]
        found = FoundWhat("S8", "Allocate", "contract: S8\nis violated", ("contract", "S8", "Allocate"))
        file = TraceFile(drawn_trace(7, "full"), "impl", found, FoundBy("random", 1, "0.1.0"), ("shadow", "contract"))
        self.whole += [dump_trace(file)] * 5

    def takes_long(self) -> bool:
        """True if the last one was a trace after all, with so large a pool that its run may take minutes."""
        try:
            trace = read_trace(self._file).trace
        except TraceError:
            return False
        return trace.shape.num_blocks * len(trace.operations) > LONG

    def words(self, random: Random) -> list[str]:
        """The arguments of a command that is given a malformed one."""
        self._file.write_bytes(spoiled(random.choice(self.whole), random))
        return ["replay", str(self._file), *random.choice(([], ["--show"], ["--json"], ["--oracle", "all"]))]


class Replies:
    """Answers of a program, for `replay --target program:...`: no program runs, its lines are given in its place."""

    def __init__(self, folder: Path) -> None:
        self.sessions = []
        for seed, name in enumerate(ATTENTION):
            trace, path = drawn_trace(40 + seed, name), folder / f"asked-{seed}.json"
            path.write_text(dump_trace(TraceFile(trace, "impl")))
            self.sessions.append((path, [HELLO, *answers_to(trace)]))
        self._lines: Iterator[bytes] = iter(())

    def words(self, random: Random) -> list[str]:
        """As for `Traces`; one of the lines is malformed."""
        path, whole = random.choice(self.sessions)
        at, lines = random.randrange(len(whole)), [line.encode() for line in whole]
        lines[at] = spoiled(whole[at], random).replace(b"\n", b" ")
        self.say(lines)
        oracles = random.choice(("lockstep", "shadow,contract", "all"))
        return ["replay", str(path), "--target", "program:none", "--oracle", oracles]

    def say(self, lines: Sequence[bytes]) -> None:
        """Answer with these lines from now on."""
        self._lines = iter(lines)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The lines are answered in the block, wherever a program would be started."""

        def receive(process: Process, deadline_s: float, about: object) -> bytes:
            line = next(self._lines, None)
            if line is None:
                raise process.lost("crash", "exit status 0")
            return line

        with ExitStack() as patches:
            for name, instead in {"_start": _nothing, "_send": _nothing, "_receive": receive}.items():
                patches.enter_context(patch.object(Process, name, instead))
            patches.enter_context(patch.object(Process, "resident", 0))
            yield


def _nothing(*_: object) -> None:
    """In place of starting a process, and of sending it a line."""


class Configurations:
    """Descriptions of models, findings of `fuzz-config`, floors, known findings, written-up findings, figures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.models = [path.read_text() for path in sorted((ROOT / "examples").glob("*.json"))]
        self.questions = [text for seed in range(20) for text in _questions(seed)]
        self.entries = (ROOT / "docs" / "evidence" / "findings" / "findings.toml").read_bytes()
        self.observed = (ROOT / "docs" / "evidence" / "findings" / "releases.json").read_text()

    def words(self, random: Random) -> list[str]:
        """As for `Traces`."""
        ways = (self._model, self._model, self._question, self._question, self._floors, self._known, self._findings)
        return random.choice((*ways, self._figures, self._traffic))(random)

    def _put(self, name: str, data: bytes) -> str:
        (self._folder / name).write_bytes(data)
        return str(self._folder / name)

    def _model(self, random: Random) -> list[str]:
        memory = random.choice(("60GiB", "1MiB", "1EiB", "-3", "1e9", "9" * 40))
        return ["plan", self._put("config.json", spoiled(random.choice(self.models), random)), "--memory", memory]

    def _question(self, random: Random) -> list[str]:
        return ["replay", self._put("question.json", spoiled(random.choice(self.questions), random))]

    def _fuzz(self, *words: str) -> list[str]:
        return ["fuzz", "--operations", "5", "--seed", "1", "--attention", "full", "--out", str(self._folder), *words]

    def _floors(self, random: Random) -> list[str]:
        if random.random() < 0.5:
            return self._fuzz("--floors", self._put("floors.toml", damaged(FLOORS_TOML, random)))
        return self._fuzz("--floors", self._put("floors.json", spoiled(FLOORS_JSON, random)))

    def _known(self, random: Random) -> list[str]:
        return self._fuzz("--known", self._put("known.toml", damaged(KNOWN, random)))

    def _findings(self, random: Random) -> list[str]:
        self._put("findings.toml", damaged(self.entries, random) if random.random() < 0.6 else self.entries)
        self._put("releases.json", spoiled(self.observed, random))
        return ["findings", str(self._folder), "--target", "impl", "--only", "hit-not-cut"]

    def _figures(self, random: Random) -> list[str]:
        kept = '{"ratios": {"impl | impl": {"prefill": 1.5, "decode": null}}}'
        figures = self._put("figures.json", spoiled(kept, random))
        return ["bench", "--target", "impl", "--against", "fault:none-such", "--check", figures]

    def _traffic(self, random: Random) -> list[str]:
        row = '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]}'
        return ["bench", "--traffic", self._put("rows.jsonl", spoiled(row, random)), "--only", "no-such-workload"]


class Arguments:
    """Options with values that make no sense, and arguments in the place of others."""

    def __init__(self, folder: Path) -> None:
        self._out, trace = str(folder / "out"), folder / "trace.json"
        trace.write_text(dump_trace(TraceFile(drawn_trace(3, "full"), "impl")))
        limits = ["--seed", "1", "--out", self._out]
        self.commands = {
            "fuzz": ["--operations", "20", *limits],
            "fuzz-config": ["--cases", "2", *limits],
            "replay": [str(trace)],
            "shrink": [str(trace), "--seconds", "1", "--out", self._out],
            "plan": ["llama-3.1-8b", "--memory", "60GiB"],
            "diff": ["--target", "impl", "--target", "impl", "--operations", "20"],
            "explore": ["full", "--max-states", "50", "--out", self._out],
            "mutants": ["--only", "free-order-reversed", "--operations", "20"],
            "bisect": [str(trace)],
            "findings": [str(folder), "--target", "impl"],
            "bench": ["--only", "no-such-workload"],
            "ci": ["--target", "no-such.py:make", "--operations", "10"],
            "prove": ["T1", "--target", "no-such"],
            "report": [str(trace), "-o", f"{self._out}.html"],
            "campaign": ["--target", "no-such", *limits],
            "verify": ["impl", "no-such", "--operations", "10", *limits],
            "watch": ["no-such", "--write", f"{self._out}.md"],
            "deviations": ["--target", "no-such", "--seconds", "0.1"],
            "simulate": ["--target", "no-such", "--steps", "5", *limits],
        }

    def words(self, random: Random, of: str | None = None) -> list[str]:
        """As for `Traces`; of this command, if one is given."""
        name = of or random.choice(list(self.commands))
        words = list(self.commands[name])
        if random.random() < 0.3:
            words[random.randrange(len(words))] = random.choice(VALUES)
        else:
            words += [random.choice(_options(name)), random.choice(VALUES)]
        self._endless = any(word.isdigit() and len(word) > 9 for word in words)
        return [name, *words]

    def takes_long(self) -> bool:
        """True if the last ones asked for a run of so many operations, or so much time, that nobody sees its end."""
        return self._endless


def _options(name: str) -> list[str]:
    """The long options of a command that take a value."""
    command = getattr(get_command(app), "commands")[name]  # noqa: B009  # of a group, which typer does not say
    options = [option for option in command.params if not getattr(option, "is_flag", True)]
    return [word for option in options for word in option.opts if word.startswith("--")]


VALUES = (
    *TEXTS, "-1", "0", "nan", "inf", "1e400", "9" * 400, "9" * 5_000, "1e-9", "²", "٣", "\ud800", "/dev/null",
    "/dev/zero", "/proc/self/mem", ".", "-", "--", "a,b,,", "full,full", "full+", "1..2", "vllm==", "vllm==0.0.1..",
    "..", "@x", "x:y", "program:", "program:'", "fault:", "impl==1", "lockstep,strict", "no-S14", "auto,lockstep",
)  # fmt: skip
Cases: TypeAlias = Traces | Replies | Configurations | Arguments | Reports | Checkpoints
KINDS: Mapping[str, Callable[[Path], Cases]] = {
    "traces": Traces,
    "replies": Replies,
    "configurations": Configurations,
    "arguments": Arguments,
    "reports": lambda folder: Reports(folder, dump_trace(TraceFile(drawn_trace(5, "full"), "impl"))),
    "checkpoints": Checkpoints,
}
HELLO = json.dumps({"protocol": 1, "name": "fake", "version": "1", "hides": [], "lacks": []})
FLOORS_TOML = b'[total]\noperations = 10\n[situations]\n"hit" = 1\n[attention]\n"full" = 1\n'
FLOORS_JSON = '{"total": {"operations": 10}, "situations": {"hit": 1}, "operations": {"Preempt": 1}}'
KNOWN = b"""[[known]]
id = "hit-lost"
reason = "blocks of a preempted request"
property = "S14"
operation = "Lookup"
oracle = "contract"
attention = ["full"]
uses = [["Advance", "Allocate", "Lookup"]]
"""


def drawn_trace(seed: int, attention: str, length: int = 12) -> Trace:
    """A trace of so many operations, drawn as `blockproof fuzz` draws them."""
    draw = SeededDraw(seed)
    shape = draw_shape(draw, ATTENTION[attention])
    model, workload, operations = Model(shape), Workload(draw, shape), list[Operation]()
    while len(operations) < length:
        operations.append(workload.next(model))
        model.step(operations[-1])
    return Trace(shape, tuple(operations))


def answers_to(trace: Trace) -> list[str]:
    """What a program that does as our core does would answer, a line each."""
    with closing(open_target("impl")) as core:
        answers = [core.start(trace.shape), *map(core.step, trace.operations)]
    return [json.dumps({**_fields(outcome), "snapshot": _shown(shown)}) for outcome, shown in answers]


def _fields(outcome: Outcome) -> dict[str, object]:
    fields = to_json(outcome)
    assert isinstance(fields, dict)
    return fields


def _shown(snapshot: Snapshot | None) -> object:
    return None if snapshot is None else snapshot._asdict()


def _questions(seed: int) -> Iterator[str]:
    """Files of findings about the questions of a drawn configuration."""
    _, questions = draw_case(SeededDraw(seed))
    for op, inputs in questions[:6]:
        found = ConfigurationFinding(LOCKSTEP, op, dict(inputs), {"output": [1]}, {"output": [2]}, ("Rules", "impl"))
        yield json.dumps(as_document(found))
