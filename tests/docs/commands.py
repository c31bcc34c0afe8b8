"""The commands that the documents show, and how each is tried without running it.

A command is found in a block of code (a line behind `$`; every line of a block without one that begins with a command;
a `blockproof ...` inside of any other line, as in what a run prints) and in spans of code in the text.
"""

import ast
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from fnmatch import filter as filter_names
from functools import cache
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
from blockproof.fuzz.adapters import example
from blockproof.fuzz.bench.entries import default_entries
from blockproof.fuzz.cli.main import app
from blockproof.fuzz.cli.options import attention_names, oracles_or_usage
from blockproof.fuzz.cli.plan import parse_memory
from blockproof.fuzz.engines.mutants import MUTANTS
from blockproof.fuzz.exploration.faults import FAULTS
from blockproof.fuzz.exploration.scopes import SCOPES
from blockproof.fuzz.faults import Part, fault_named
from blockproof.fuzz.opening.targets import check_spec
from blockproof.fuzz.releases.finding_scripts import standalone
from blockproof.fuzz.releases.findings import SCRIPT, WHOLE
from blockproof.fuzz.releases.versions import range_in, releases_between
from blockproof.fuzz.testing.pytest_options import OPTIONS
from blockproof.proofs.theorems import THEOREMS

from ..fuzz.malformed_cases import KINDS
from .pages import ROOT, blocks, spans

SHELL = ("", "console", "sh", "bash")
"""Languages of blocks that are typed into a shell."""
OTHERS = frozenset(
    {"apt", "cat", "cc", "cd", "do", "done", "for", "git", "head", "mail", "pre-commit", "ray", "source"}
)
"""Programs that are not ours, which are not looked into."""
PROGRAMS = frozenset({"blockproof", "make", "python", "pip", "pytest"}) | OTHERS
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ +)*(?:\.venv/bin/)?([\w-]+)(?= |$)")
_INSIDE = re.compile(r"(?<![\w./'\"=-])blockproof ([a-z][\w-]*)(?= |$)[^`|]*")
_PLACEHOLDER = re.compile(r"\.\.\.|[A-Z_]+|my-.*")
"""What stands for a value that only the reader knows."""


@dataclass(frozen=True)
class Shown:
    """A command as a page shows it."""

    line: int
    """From 1."""
    text: str
    in_block: bool
    """In a block of its own, so that a reader types it; else named in a text, or in what was printed."""
    output: tuple[str, ...] = ()
    """The lines below it, up to the next command; empty where only commands are shown."""


def commands(text: str) -> Iterator[Shown]:
    """Every command on a page."""
    for block in blocks(text):
        lines = list(_joined(block.lines))
        behind_dollar = any(line.startswith("$ ") for _, line in lines)
        all_typed = block.language in SHELL and not behind_dollar and _may_be_typed(lines[0][1])
        for offset, line in lines:
            if line.startswith("$ ") or (all_typed and line):
                yield Shown(block.line + offset, line.removeprefix("$ "), True, _below(block.lines, offset))
            elif (inside := _INSIDE.search(line)) and inside[1] in NAMES:
                yield Shown(block.line + offset, inside[0].strip(), False)
    for number, span in spans(text):
        if _is_command(span) and " " in span:
            yield Shown(number, span, False)
        elif (words := span.split())[1:] and words[0] in NAMES and words[1].startswith("--"):
            yield Shown(number, f"blockproof {span}", False)


def _below(lines: tuple[str, ...], offset: int) -> tuple[str, ...]:
    """The output of the command behind a `$` in this line, from 1."""
    if not lines[offset - 1].startswith("$ "):
        return ()
    while lines[offset - 1].endswith("\\"):
        offset += 1
    rest = lines[offset:]
    end = next((number for number, line in enumerate(rest) if line.startswith("$ ")), len(rest))
    return rest[:end]


def _joined(lines: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Lines with those that go on behind a backslash, each with its place from 1."""
    begun, start = "", 0
    for offset, line in enumerate(lines, 1):
        start = start if begun else offset
        begun += line
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
        else:
            yield start, begun.strip()
            begun = ""


def _is_command(line: str) -> bool:
    found = _COMMAND.match(line)
    return found is not None and found[1] in PROGRAMS


def _may_be_typed(line: str) -> bool:
    """Does it begin with a program, or with a word that is meant as one, as there are options?"""
    return _is_command(line) or re.match(r"[a-z]\S* ([a-z-]+ )?--[a-z]", line) is not None


@cache
def tree() -> Any:
    """The command line, none of whose commands does anything: its `main` returns what a command would be given."""
    command = typer.main.get_command(app)
    _make_harmless(command)
    return command


def _make_harmless(command: Any) -> None:
    for inner in getattr(command, "commands", {}).values():
        _make_harmless(inner)
    if not hasattr(command, "commands") or (command.invoke_without_command):
        command.callback = lambda **given: {"command": command.name, **given}


NAMES = frozenset(tree().commands)


def problem(command: Shown, page: Path) -> str:
    """What is wrong with a command of a page, tried without running it; empty if nothing is.

    A file of ours that it names must be there. Of one that is only spoken of, arguments may be missing.
    """
    text, usage, _ = command.text.partition(" [OPTIONS]")
    try:
        parts = [*_simple_commands(text)]
    except ValueError as error:
        return f"{error}: the shell would not read this"
    for words in parts:
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        if not words:
            continue
        program, arguments = Path(words[0]).name, words[1:]
        if program not in PROGRAMS:
            return f"{program}: is no program that is known here; correct it, or add it to OTHERS"
        if program == "python" and arguments and arguments[0] in of_commits(page):
            continue
        if missing := [word for word in words if _is_ours(word) and not (ROOT / word).exists()]:
            return f"there is no {missing[0]}"
        if program == "python":
            said = _python(arguments, page.parent)
        elif program == "blockproof" and (usage or not command.in_block):
            said = _spoken_of(arguments)
        else:
            said = _TRIED.get(program, lambda _: "")(arguments)
        if said:
            return said
    return ""


@cache
def of_commits(page: Path) -> dict[str, str]:
    """Scripts by which a page was written and that have gone since, each with the commit that the page names."""
    named = re.findall(r"`git show ([0-9a-f]{7,40}):(benchmarks/\w+\.py)`", page.read_text(encoding="utf-8"))
    return {script: commit for commit, script in named}


def _simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each command in a line of the shell, without comment and redirections."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word and set(word) <= set("();<>|&"):
            yield words
            words = ["mail"] if word in ("<", ">") else []  # what follows is a file
        else:
            words.append(word)


def _is_ours(word: str) -> bool:
    """Does it name a file or folder of the repository?"""
    return re.match(r"(docs|examples|benchmarks|tests|fuzz|impl|model|proofs|\.ci)/", word) is not None and not (
        re.search(r"NAME|\*|:|\.\.\.|nano-vllm|tests/v1|tests/regressions", word)
    )


def _blockproof(arguments: list[str]) -> str:
    try:
        with redirect_stdout(StringIO()):
            given = tree().main(arguments, prog_name="blockproof", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())
    return _wrong_value(given) if isinstance(given, dict) else ""


def _spoken_of(arguments: list[str]) -> str:
    """The same of a command that is named in a text, or in what was printed: what it leaves open may be missing."""
    given = [word for word in arguments if word != "..."]
    command = tree()
    while given and (inner := getattr(command, "commands", {}).get(given[0])):
        command, given = inner, given[1:]
    if not given:
        return "" if command is not tree() or "..." in arguments else "names no command"
    said = _blockproof(arguments)
    left_open = any(_PLACEHOLDER.fullmatch(word) for word in arguments)
    if said.startswith("Missing ") or said.endswith("requires an argument.") or (said and left_open):
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        used = (word.partition("=")[0] for word in given if word.startswith("-"))
        return next((f"No such option: {option}" for option in used if option not in known), "")
    return said


def _wrong_value(given: Mapping[str, Any]) -> str:
    """What a command would say of the names that it looks at first: targets, attention types, oracles, and so on."""
    settings = given["command"] == "mutants"  # which holds settings against one another, not targets
    named = ["target"] if settings else ["target", "against"]
    targets = [target for name in named for target in _listed(given.get(name))]
    known = [target for target in targets if not _PLACEHOLDER.fullmatch(target)]
    if given["command"] == "prove":
        known = [target for target in known if target != "model"]
    try:
        for target in known:
            check_spec(target)
            fault_named(target, Part.CORE)
        if given.get("attention"):
            attention_names(given["attention"])
        if (oracle := given.get("oracle")) not in (None, "auto", ["auto"]) and "..." not in str(oracle):
            oracles_or_usage(oracle, known[0] if known else "impl")
        releases = given.get("releases")
        for release in _listed(releases):
            if isinstance(releases, list) or ".." not in release:
                check_spec(release)
            elif given["command"] == "bisect":
                range_in(release, None, example())  # the trace may say which engine is meant
            else:
                releases_between(release)
        if given["command"] == "plan":
            for size in given["memory"].split(","):
                parse_memory(size)
    except (ValueError, typer.BadParameter) as error:
        return str(error)
    for parameter, names in _NAMES_OF.get(given["command"], {}).items():
        for name in _listed(given[parameter]):
            if not _PLACEHOLDER.fullmatch(name) and not filter_names(names(), name):
                return f"{name}: nothing is called so"
    return ""


def _listed(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else [*(value or [])]


_NAMES_OF: Mapping[str, Mapping[str, Callable[[], Collection[str]]]] = {
    "bench": {"only": lambda: [entry.name for entry in default_entries()]},
    "explore": {"scopes": lambda: SCOPES, "fault": lambda: FAULTS},
    "mutants": {"only": lambda: MUTANTS},
    "prove": {"ids": lambda: {id for one in THEOREMS for id in (one.id, one.id.partition(".")[0])}},
}
"""The names that a parameter of a command may have."""


def _make(arguments: list[str]) -> str:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    wanted = [word for word in arguments if "=" not in word]
    return next((f"make has no target {word!r}" for word in wanted if word not in targets), "")


def _python(arguments: list[str], folder: Path) -> str:
    if arguments[:1] == ["-m"]:
        if arguments[1] in ("pip", "pytest"):
            return _TRIED[arguments[1]](arguments[2:])
        module = ROOT / (arguments[1].removeprefix("blockproof.").replace(".", "/") + ".py")
        return "" if module.exists() else f"there is no module {arguments[1]}"
    script, rest = arguments[0] if arguments else "", arguments[1:]
    written = [folder / SCRIPT] if script == WHOLE else []  # as one file; see `blockproof findings --script`
    path = next((path for path in (ROOT / script, folder / script, *written) if path.exists()), None)
    if path is None:
        return f"there is no {script}"
    known = options_of(path)
    used = {word.partition("=")[0] for word in rest if word.startswith("-")}
    return next((f"{script} has no option {option}" for option in sorted(used - known)), "")


def options_of(script: Path) -> set[str]:
    """The options that a script of ours, or of a finding, reads: the texts in it that look like one."""
    source = standalone(script) if script.name == SCRIPT else script.read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(source))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    if script.name == "hostile.py":  # one for each kind of malformed document
        texts |= {f"--{kind}" for kind in KINDS}
    if re.search(r"^from written import .*\bparser\b", source, re.MULTILINE):
        texts |= options_of(script.with_name("written.py"))
    return {text for text in texts if re.fullmatch(r"--?[a-z][\w-]*", text)}


def _pip(arguments: list[str]) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra for word in arguments for group in re.findall(r"\[(.*)\]", word) for extra in group.split(",")}
    unknown = sorted(extras - project["optional-dependencies"].keys())
    return f"there is no extra {unknown[0]!r}" if unknown else ""


def _pytest(arguments: list[str]) -> str:
    known = {f"--blockproof-{option.name}" for option in OPTIONS}
    used = (word.partition("=")[0] for word in arguments if word.startswith("--blockproof"))
    return next((f"the plugin has no {option}" for option in used if option not in known), "")


_TRIED: Mapping[str, Callable[[list[str]], str]] = {
    "blockproof": _blockproof,
    "make": _make,
    "pip": _pip,
    "pytest": _pytest,
}


def output_of(text: str, begin: str) -> tuple[str, ...]:
    """The lines that a page shows below the first command that begins like this."""
    return next(one.output for one in commands(text) if one.output and one.text.startswith(begin))


def differs(lines: Sequence[str], printed: str) -> str:
    """The first line of a page that was not printed there; empty if all were.

    What a page shows is a piece of what was printed, without gaps. A line of three dots stands for any lines, three
    dots at the end of a line for its rest, and a time for any time.
    """
    given, place = printed.splitlines(), 0
    for dots, piece in groupby(lines, lambda line: line.strip() == "..."):
        wanted = [] if dots else [*piece]
        agree = {at: _agreeing(wanted, given[at:]) for at in range(place, len(given) + 1)}
        place = max(agree, key=lambda at: agree[at])
        if agree[place] < len(wanted):
            return wanted[agree[place]]
        place += len(wanted)
    return ""


def _agreeing(wanted: list[str], given: list[str]) -> int:
    """How many lines agree before the first that does not."""
    pairs = enumerate(zip(wanted, given, strict=False))
    most = min(len(wanted), len(given))
    return next((number for number, (line, other) in pairs if not _pattern(line).fullmatch(other)), most)


def _pattern(line: str) -> re.Pattern[str]:
    text, dots = line.rstrip().removesuffix("..."), line.rstrip().endswith("...")
    exact = re.sub(r"\d[\d,]*(?:\\\.\d+)?(?=\\ s\b)", r"[\\d.,]+", re.escape(text))
    return re.compile(exact + (".*" if dots else r"\s*"))
