"""Options that had another name in the version before: whoever writes the old one is told the new one.

One word means one thing in all commands: `--json` prints one document, `--write` names a file for Markdown, `--keep`
what a later run goes on from or is held against, `--check` where that lies, `--seconds` how long.
"""

import sys
from collections.abc import Sequence

WRITE = "--write"
_NO_ENGINE = "needless: operations are drawn at random; Hypothesis draws for kv_cache_machine of blockproof.fuzz"
_WITH_PAGE = ("fuzz", "campaign", "simulate")
NOW: dict[tuple[str, str], str] = {
    ("fuzz", "--summary"): WRITE,
    ("campaign", "--summary"): WRITE,
    ("verify", "--comment"): WRITE,
    ("deviations", "--page"): WRITE,
    ("findings", "--page"): WRITE,
    ("campaign", "--hours"): "--seconds, which takes 8h, too",
    ("watch", "--minutes"): "--seconds, which takes 30m, too",
    ("fast", "--check"): "--built",
    ("fuzz-config", "--findings"): "--keep-going, which has no number",
    ("fuzz-config", "--replay"): "a command of its own: blockproof replay FILE",
    ("simulate", "--replay"): "a command of its own: blockproof replay FILE",
    ("simulate", "--connector"): "called --option: --option connector= for none, --option connector=loads-later",
    ("fuzz", "--engine"): _NO_ENGINE,
    **{
        (command, "--serve"): "--live, which takes a file: a browser that has it open follows" for command in _WITH_PAGE
    },
    **{(command, "--port"): "needless: --live writes a file, and nothing listens" for command in _WITH_PAGE},
}
"""By command and old option."""
FLAGS: dict[tuple[str, str], str] = {
    ("bench", "--json"): "prints the document now; write > FILE behind it",
}
"""Options that took a file and take none any more."""
COMMANDS = {
    ("bench", "detection"): "mutants --setting NAME --against NAME, --first-seed is --seed, --list is --settings",
    ("--engine", "random"): _NO_ENGINE,
    ("--engine", "hypothesis"): _NO_ENGINE,
}
"""Commands that are options of another one, and values of an option that has become a switch."""


def as_called_now(given: Sequence[str]) -> Sequence[str]:
    """The same for a command that is called otherwise since the last version, which is said in a line on stderr."""
    if not given or given[0] != "fuzz-scheduler":
        return given
    print("blockproof: fuzz-scheduler is now called simulate --keep-going", file=sys.stderr)
    return ["simulate", "--keep-going", *given[1:]]


def what_became_of(error: Exception, given: Sequence[str]) -> str:
    """What to write instead of the command or the option that is not known, of those that are given; empty if there
    never was one."""
    for words, now in COMMANDS.items():
        if any(tuple(given[at : at + len(words)]) == words for at in range(len(given))):
            return f"{' '.join(words)} is now {now}"
    command, option = _command_of(error), str(getattr(error, "option_name", ""))
    if (command, option) in NOW:
        now = NOW[command, option]
        return f"{option} is now {'called ' if now.startswith('--') else ''}{now}"
    if "--json" in given and (command, "--json") in FLAGS:
        return f"--json {FLAGS[command, '--json']}"
    return ""


def _command_of(error: Exception) -> str:
    """The command without the program's name, such as `targets check`."""
    names, context = list[str](), getattr(error, "ctx", None)
    while context is not None and context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return " ".join(names)
