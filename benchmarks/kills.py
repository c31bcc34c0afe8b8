"""`kill -9` at any moment: nothing that was reported is lost, and no file is half-written.

python benchmarks/kills.py [--kills N] [--seed N] [--only NAME] [--keep FOLDER] [--write PAGE]

Starts each command again and again in the same folder, kills it and all its processes at a moment that is drawn, and
looks at the folder: what the command said it had found is there and can be loaded, and so can every other file, but for
those that bear the name of an unfinished one. A whole run then removes these. In the end two are started at once in one
folder, and both must keep what is theirs. Exits with 1 if a promise was broken.
"""

import argparse
import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from blockproof.fuzz.configuration.findings import read_finding
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.page.campaign_document import CampaignRow
from blockproof.fuzz.page.files import CAMPAIGN_FILE, before_name
from blockproof.fuzz.releases.findings import OBSERVED, TEXTS, read_observations
from blockproof.fuzz.traces.known_file import add_known
from blockproof.fuzz.traces.reproduction import folder_name
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, read_trace, write_trace
from blockproof.model.ops import Allocate, Free, Group, Shape, Submit
from blockproof.proofs.exploration.checkpoint import load
from blockproof.proofs.exploration.scopes import SCOPES
from blockproof.proofs.exploration.search import Search
from written import HOSTILE_PAGE, put_section

FAULTS = ("fault:free-order-reversed", "fault:touch-ignores-used-blocks")
UNFINISHED = re.compile(r"\..+\.unfinished")
ENTRY = '[{name}]\ntitle = "T"\nclass = "leak"\nrule = "S1"\nreachable = "no"\nsees = "x"\nfix = "y"\n'
SCOPE = "full"


@dataclass(frozen=True)
class Victim:
    """A command that is killed."""

    name: str
    words: Callable[[Path, int], list[str]]
    """Its arguments, for a folder and a seed."""
    said: Callable[[str, Path], Iterator[str]]
    """What is wrong with what it has said, given its output and the folder."""
    prepare: Callable[[Path], None] = lambda folder: None
    two: bool = True
    """True if two at once are tried, too."""


def main() -> int:
    """Kill, look, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[victim.name for victim in VICTIMS])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    victims = [victim for victim in VICTIMS if asked.only in (None, victim.name)]
    broken, said, begin = 0, list[str](), time.monotonic()
    for number, victim in enumerate(victims):
        share = asked.kills // len(victims) + (number < asked.kills % len(victims))
        with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
            folder = asked.keep / victim.name if asked.keep else Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            broken += tried(victim, share, asked.seed, folder, said)
    said.append(f"{asked.kills} kills, {broken} broken promises; {time.monotonic() - begin:.0f} s")
    put_section(asked.write, "Kills", HOSTILE_PAGE, said)
    return 1 if broken else 0


def tried(victim: Victim, kills: int, seed: int, folder: Path, said: list[str]) -> int:
    """Kill a command so often. Adds a line to what is said, and returns how many promises it broke."""
    draw, problems = random.Random(f"{victim.name} {seed}"), list[str]()
    victim.prepare(folder)
    begin = time.monotonic()
    whole = finished(victim, folder, seed)
    longest = time.monotonic() - begin
    problems += looked_at(victim, whole, folder)
    done, early, left, files = 0, 0, 0, 0
    while done < kills and early < 3 * kills:
        output, ended = killed(victim, folder, seed + (done + early) % 7, draw.uniform(0.1, 1.0) * longest)
        early, done = early + ended, done + (not ended)
        problems += looked_at(victim, output, folder)
        left += len(unfinished(folder))
        files = len(list(folder.rglob("*")))
    problems += looked_at(victim, finished(victim, folder, seed), folder)
    problems += [f"is still there: {path}" for path in unfinished(folder)]
    if victim.two:
        running = [started(victim, folder, seed + 100 + number) for number in range(2)]
        for process in running:
            problems += looked_at(victim, process.communicate()[0], folder)
    counts = f"{done} killed in {longest:.1f} s at most, {early} had ended before"
    said.append(f"{victim.name:10} {counts}; {files} files, {left} unfinished met; {len(problems)} broken promises")
    said += [f"  {problem}" for problem in problems]
    return len(problems)


def started(victim: Victim, folder: Path, seed: int) -> "subprocess.Popen[str]":
    """The command, in a group of processes of its own; what it prints comes at once."""
    command = [sys.executable, "-u", "-m", "blockproof.fuzz.cli", *victim.words(folder, seed)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, text=True, start_new_session=True, stdin=subprocess.DEVNULL, **streams)  # type: ignore[call-overload, no-any-return]


def finished(victim: Victim, folder: Path, seed: int) -> str:
    """What it prints if nobody kills it."""
    process = started(victim, folder, seed)
    output, _ = process.communicate()
    if process.returncode not in (0, 1):
        raise SystemExit(f"{victim.name} does not run: {output}")
    return output


def killed(victim: Victim, folder: Path, seed: int, after_s: float) -> tuple[str, bool]:
    """What it had printed when it was killed, and whether it had ended by itself."""
    process = started(victim, folder, seed)
    try:
        output, _ = process.communicate(timeout=after_s)
        return output, True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0], False


def unfinished(folder: Path) -> list[Path]:
    """Files that nobody goes on writing."""
    return [path for path in folder.rglob("*") if UNFINISHED.fullmatch(path.name)]


def looked_at(victim: Victim, output: str, folder: Path) -> list[str]:
    """What is wrong with the folder, and with what was said of it."""
    problems = [*victim.said(whole_lines(output), folder)]
    for path in folder.rglob("*"):
        if path.is_file() and not UNFINISHED.fullmatch(path.name):
            problems += [f"{path}: {wrong}" for wrong in loaded(path)]
    return problems


def whole_lines(output: str) -> str:
    """The output without a line that was cut off."""
    return output[: output.rfind("\n") + 1]


def loaded(path: Path) -> Iterator[str]:
    """What is wrong with a file; nothing if it can be loaded."""
    try:
        if path.suffix == ".py":
            ast.parse(path.read_text(encoding="utf-8"))
        elif path.suffix == ".states":
            load(Search(SCOPES[SCOPE]), path)
        elif path.name == OBSERVED:
            read_observations(path.parent)
        elif path.name == "known.toml":
            add_known(path, [])  # entries still lack their reasons
        elif path.suffix == ".html":
            yield from no_page(path.read_text(encoding="utf-8"))
        elif path.name in (CAMPAIGN_FILE, before_name(Path(CAMPAIGN_FILE))):
            msgspec.json.decode(path.read_bytes(), type=list[CampaignRow])
        elif path.name.startswith("configuration_"):
            read_finding(path)
        elif path.suffix == ".json":
            read_trace(path)
        elif path.name != TEXTS:
            yield "is no file of ours"
    except Exception as error:
        yield f"cannot be loaded: {error}"


def no_page(text: str) -> Iterator[str]:
    """What is wrong with a page: it holds its whole document, and ends."""
    document = re.search(r'<script type="application/json" id="document">(.+?)</script>', text, re.DOTALL)
    if document is None or not json.loads(document[1]) or not text.endswith("</html>\n"):
        yield "is no whole page"


def saved_files(output: str, folder: Path) -> Iterator[str]:
    """Every file that the output names as saved is there, and can be loaded."""
    for name in re.findall(r"(?:saved in|trace:|pytest:|shrunk:|page:) +(\S+?\.(?:json|py|html))\b", output):
        if not Path(name).is_file():
            yield f"{name} was named and is not there"


def counted_findings(output: str, folder: Path) -> Iterator[str]:
    """As many traces of each target as kinds of findings were counted."""
    yield from saved_files(output, folder)
    for target, count in re.findall(r"^(\S+): .*?(\d+) kinds? of findings?", output, re.MULTILINE):
        traces = list((folder / folder_name(target)).glob("*_whole.json"))
        if len(traces) < int(count):
            yield f"{target}: {count} kinds of findings were counted, {len(traces)} traces are there"


def recorded(output: str, folder: Path) -> Iterator[str]:
    """Every observation that was printed is in the file."""
    for spec, key, seen in re.findall(r"^(fault:\S+|impl) +(\S+) +(\w.*)$", output, re.MULTILINE):
        if read_observations(folder).get(key, {}).get(spec) != seen:
            yield f"{key} on {spec} was printed as {seen} and is not recorded"


def added(output: str, folder: Path) -> Iterator[str]:
    """Every entry that was said to be added is in the file."""
    yield from saved_files(output, folder)
    for names in re.findall(r"^added to \S+: (.*?); write", output, re.MULTILINE):
        text = (folder / "known.toml").read_text(encoding="utf-8")
        yield from (f"{name} was added and is not there" for name in names.split(", ") if f'id = "{name}"' not in text)


def with_findings(folder: Path) -> None:
    """A folder of written-up findings."""
    shape = Shape((Group("full", 2),), 6, 16, hash_block_size=2, scheduler_block_size=2, max_num_batched_tokens=16)
    steps = (Submit("a", (0, 1, 2, 3)), Allocate("a", 4), Free("a"))
    names = [f"number-{number}" for number in range(12)]
    for name in names:
        file = TraceFile(Trace(shape, steps), "impl", FoundWhat("S9", "Free", "x"))
        write_trace(file, folder / f"{name}.json")
    (folder / TEXTS).write_text("".join(ENTRY.format(name=name) for name in names), encoding="utf-8")


def fuzz(folder: Path, seed: int) -> list[str]:
    """Goes on after findings, and adds them to a file."""
    words = ["fuzz", "--target", FAULTS[seed % 2], "--seed", str(seed), "--operations", "1500", "--keep-going"]
    return [*words, "--out", str(folder), "--write-known", str(folder / "known.toml")]


def campaign(folder: Path, seed: int) -> list[str]:
    """Two targets at once."""
    words = [word for fault in FAULTS for word in ("--target", fault)]
    words += ["--operations", "1000", "--attention", "full,sliding", "--shrink-seconds", "0.5", "--jobs", "2"]
    return ["campaign", *words, "--seed", str(seed), "--out", str(folder)]


def explore(folder: Path, seed: int) -> list[str]:
    """A fault that is found, or a search that is not over, which is saved."""
    if seed % 2:
        return ["explore", "--fault", "hashless-to-the-back", "--out", str(folder)]
    return ["explore", SCOPE, "--max-states", str(200 + 50 * (seed % 5)), "--save", str(folder), "--out", str(folder)]


def record(folder: Path, seed: int) -> list[str]:
    """On two targets."""
    words = [word for target in ("impl", FAULTS[seed % 2]) for word in ("--target", target)]
    return ["findings", str(folder), "--record", *words]


def configurations(folder: Path, seed: int) -> list[str]:
    """Until two are found."""
    words = ["fuzz-config", "--target", "fault:one-block-more", "--seed", str(seed), "--cases", "60"]
    return [*words, "--findings", "2", "--out", str(folder)]


VICTIMS = (
    Victim("fuzz", fuzz, added),
    Victim("campaign", campaign, counted_findings),
    Victim("explore", explore, saved_files),
    Victim("findings", record, recorded, with_findings),
    Victim("configs", configurations, saved_files),
)

if __name__ == "__main__":
    sys.exit(main())
