"""Every command on every page is tried: run, with the output that the page shows, or at least parsed as it stands."""

import json
import re
import shlex
import subprocess
import webbrowser
from functools import cache

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.cli.renamed import NOW
from blockproof.fuzz.testing.pytest_options import OPTIONS

from .commands import OTHERS, Shown, commands, differs, of_commits, options_of, problem, tree
from .pages import EVERY_NAME, EVERY_PAGE, ROOT, spans

RUN = "run"
HOW = {
    "usage": ("the line of usage of `--help`", r".*\[OPTIONS\]"),
    "installs": (
        "installs packages or engines, or runs all tests; CI does, and .ci/wheel",
        r"(make|pip|\S*python -m pip|blockproof targets install)\b",
    ),
    "engine": (
        "needs a release of an engine, or its repository, which a machine may not have",
        r".*(vllm|sglang|lmdeploy|transformers==|nano|blockproof compat)|python reproduce\.py",
    ),
    "compiled": ("needs the compiled core; tests/impl/test_compiled.py", r"blockproof fast\b|.*impl-compiled"),
    "reader's": (
        "names a file, a target or commits of the reader's own",
        r".*\b(trace\.json|requests\.jsonl|lengths\.csv|my_\w+[.:]|my\.adapter|MODEL\.json|target\.jar|test_my_core)",
    ),
    RUN: (
        "run by a test below, with the files that it names, and compared with what the page shows",
        r"(\.venv/bin/)?blockproof "
        r"(fuzz --target fault:|(replay|report) (docs|examples|findings)/|plan examples/|schema\b|mutants --list)",
    ),
    "minutes": (
        "takes minutes; what it printed is a page of evidence",
        r"((\w+=\S+ )?\S*python benchmarks/|blockproof (explore|bench|prove|campaign|mutants)\b"
        r"|.*--(seconds|steps) \d{3})",
    ),
    "C": ("needs a compiler; tests/fuzz/opening/test_program.py does the same where there is one", r"cc |.*c_target"),
    "shell": ("of the shell, or of a program that is not ours", rf"({'|'.join(sorted(OTHERS))})\b"),
}
"""How the commands of blocks are tried besides being parsed: the reason, and what such commands look like. The first
that fits counts."""
_GUIDE, _ACTION = "tests/docs/test_guide.py::test_", "tests/fuzz/testing/test_action.py::test_"
_BUG = f"{_GUIDE}the_bug_of_the_page_is_found_and_shrunk_to_the_trace_on_it"
_PLUGIN = f"{_ACTION}the_example_is_tested_by_pytest_as_well"
_RADIX = "tests/fuzz/test_radix_engine.py::test_the_commands_of_its_page_find_nothing"
_SCHEDULER = "tests/fuzz/test_scheduler_engine.py::test_the_commands_of_its_page_find_nothing"
_PAIR = "tests/fuzz/test_pair_engine.py::test_the_commands_of_its_page_find_nothing"
_FIRST_STORE = "tests/docs/test_guide.py::test_a_connector_from_an_empty_file"
_FIRST_PAIR = f"{_GUIDE}a_pair_from_an_empty_file"
RUN_ELSEWHERE = {
    ("docs/guide/your-engine.md", "blockproof targets new"): f"{_GUIDE}targets_new_writes_what_the_page_says",
    ("docs/guide/your-engine.md", "blockproof targets check my"): f"{_GUIDE}the_check_says_what_the_page_says",
    ("docs/guide/your-engine.md", "blockproof fuzz --target my_target.py:make_target --seed 1 --operations"): (
        f"{_GUIDE}the_example_runs_and_nothing_is_found"
    ),
    ("docs/guide/your-engine.md", "git apply bug.patch"): _BUG,
    ("docs/guide/your-engine.md", "blockproof fuzz --target my_target.py:make_target --seed 1 --seconds"): _BUG,
    ("examples/my-engine/README.md", "pytest --blockproof-seconds"): _PLUGIN,
    ("examples/my-radix-engine/README.md", "blockproof"): _RADIX,
    ("examples/my-scheduler-engine/README.md", "blockproof"): _SCHEDULER,
    ("examples/my-pair/README.md", "blockproof"): _PAIR,
    ("docs/guide/engines.md", "blockproof targets check --engine my_pair.py"): _FIRST_PAIR,
    ("docs/guide/engines.md", "blockproof simulate --target my_pair.py"): _FIRST_PAIR,
    ("docs/guide/engines.md", "blockproof targets check --engine my_store.py"): _FIRST_STORE,
    ("docs/guide/engines.md", "blockproof simulate --target my_store.py"): _FIRST_STORE,
    ("docs/guide/engines.md", "blockproof targets new my-pd"): f"{_GUIDE}a_pair_that_is_begun_for_you",
    (
        "docs/guide/engines.md",
        "blockproof targets new my-engine",
    ): "tests/docs/test_guide.py::test_an_engine_to_be_simulated",
    ("docs/guide/pytest.md", "pytest"): _PLUGIN,
}
"""Commands that a test with more around it runs: page, begin, and the test."""


def shown_on(page):
    return list(commands(page.read_text(encoding="utf-8")))


def how_tried(name, text):
    """How a command of a block is tried besides being parsed; empty if nobody has said."""
    for page, begin in RUN_ELSEWHERE:
        if page == name and text.startswith(begin):
            return f"{page}: {begin}"
    kind = next((kind for kind, (_, looks) in HOW.items() if re.match(looks, text)), "")
    if name == "docs/reference/command-line.md" and kind in ("", RUN):
        return "usage"  # the examples of `--help`, whose files the reader has
    return kind


@pytest.mark.parametrize("page", EVERY_PAGE, ids=EVERY_NAME)
def test_every_command_of_a_page_is_one_that_there_is(page):
    wrong = [(one.line, one.text, said) for one in shown_on(page) if (said := problem(one, page))]
    assert wrong == [], "mend the page; or say in tests/docs/commands.py what is meant"


def test_every_command_of_a_block_is_run_or_it_is_said_why_not():
    tried = set()
    for name, page in zip(EVERY_NAME, EVERY_PAGE, strict=True):
        for one in shown_on(page):
            if one.in_block:
                how = how_tried(name, one.text)
                assert how, f"{name}:{one.line}: {one.text}: say in HOW whether it can be run, or why not"
                tried.add(how)
    known = {f"{page}: {begin}" for page, begin in RUN_ELSEWHERE} | HOW.keys()
    assert known - tried == set(), "no page has these any more"


@pytest.mark.parametrize("test", sorted(set(RUN_ELSEWHERE.values())))
def test_the_tests_that_run_commands_of_pages_are_there(test):
    file, _, name = test.partition("::")
    assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8")


# Options that a text names by themselves.

OPTIONS_OF_OTHERS = {
    "--hypothesis-seed", "--hypothesis-profile", "--hypothesis-show-statistics",  # Hypothesis
    "--disable-hybrid-kv-cache-manager", "--no-enable-prefix-caching", "--prefix-match-unit",  # vLLM
    "--fixed", "--sweep",  # the scripts of findings
    "--help",
}  # fmt: skip


@cache
def known_options():
    def of(command):
        for parameter in command.params:
            yield from (*parameter.opts, *parameter.secondary_opts)
        for inner in getattr(command, "commands", {}).values():
            yield from of(inner)

    scripts = (*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "docs").rglob("*.py"))
    ours = {f"--blockproof-{option.name}" for option in OPTIONS} | set(of(tree()))
    return ours | OPTIONS_OF_OTHERS | {name for script in scripts for name in options_of(script)}


def unknown_options(text):
    """The options in spans of code that nothing has, each with its line."""
    named = ((line, name) for line, span in spans(text) for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", span))
    return [one for one in named if one[1] not in known_options()]


@pytest.mark.parametrize("page", EVERY_PAGE, ids=EVERY_NAME)
def test_every_option_that_a_text_names_is_there(page):
    gone = {option for _, option in NOW} if page.name == "CHANGELOG.md" else set()
    assert [one for one in unknown_options(page.read_text(encoding="utf-8")) if one[1] not in gone] == []


# Those that are run: quick, and on nothing but what is here.

FILES = {"findings/tables_allocate_f0822041.json": "docs/evidence/deviations/hit-not-cut.json"}
"""Files that a page takes for granted, each with one of the repository that is given to our core instead."""


def run_on(name):
    """The commands of a page that are run, in order."""
    return [one for one in shown_on(ROOT / name) if one.in_block and how_tried(name, one.text) == RUN]


def lay_out(words, folder):
    """Puts the files that a command names into the folder, where they are not there yet."""
    for word in words:
        source = ROOT / FILES.get(word, word)
        if re.match(r"(docs|examples|findings)/", word) and source.is_file() and not (folder / word).exists():
            text = source.read_text(encoding="utf-8")
            if word in FILES:
                text = json.dumps({**json.loads(text), "target": "impl"})
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
            (folder / word).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in EVERY_NAME if run_on(name)])
def test_quick_commands_print_what_the_page_shows(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip("jinja2", reason="the extra `report`: lines of output name the page of a finding")
    monkeypatch.setattr(webbrowser, "open", lambda *_: True)
    monkeypatch.chdir(tmp_path)
    for one in run_on(name):
        words = shlex.split(one.text, comments=True)[1:]
        lay_out(words, tmp_path)
        assert main(words) in (0, 1), one.text
        assert differs(one.output, capsys.readouterr().out) == "", one.text


def test_the_commands_that_are_run_are_those_that_are_meant():
    ran = {(name, one.text.split()[1], bool(one.output)) for name in EVERY_NAME for one in run_on(name)}
    assert ran >= {
        ("README.md", "plan", False),
        ("docs/guide/first-run.md", "fuzz", True),
        ("docs/guide/plan.md", "plan", True),
        ("docs/guide/report.md", "report", True),
    }


# The rules notice what they are for.

PAGE = ROOT / "README.md"


def wrong_on(text):
    """What is wrong with the commands of a page that has this text."""
    return [said for one in commands(text) if (said := problem(one, PAGE))]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```\nblockproof fuzz --tarket impl\n```", "No such option: --tarket"),
        ("```\n$ blockproof fuz --target impl\nx\n```", "No such command 'fuz'"),
        ("```\n$ blockproof fuzz --target impl \\\n    --operations many\n```", "'--operations'"),
        ("```\nblockproof fuzz --attention fulll\n```", "fulll"),
        ("```\nblockproof fuzz --oracle shadows\n```", "shadows"),
        ("```\nblockproof fuzz --target impll\n```", "unknown target 'impll'"),
        ("```\nblockproof campaign --releases vlm\n```", "unknown target 'vlm'"),
        ("```\nblockproof campaign --releases vlm==0.19.1..0.20.2\n```", "vlm"),
        ("```\nblockproof targets install vllm=0.33.0\n```", "vllm=0.33.0"),
        ("```\nblockproof replay t.json --target fault:nothing\n```", "unknown fault 'nothing'"),
        ("```\nblockproof bench --against vlm==0.23.0\n```", "vlm==0.23.0"),
        ("```\nblockproof bench --only 'decoed*'\n```", "decoed*: nothing"),
        ("```\nblockproof mutants --only nothing\n```", "nothing: nothing"),
        ("```\nblockproof prove T99\n```", "T99: nothing"),
        ("```\nblockproof explore slidin\n```", "slidin: nothing"),
        ("```\nblockproof plan m.json --memory much\n```", "'much' is not a size"),
        ("```\nblockproof fuzz --target 'impl\n```", "No closing quotation"),
        ("```\nblockproof replay\n```", "Missing argument 'TRACE'"),
        ("```\nblockproof plan examples/none.json --memory 1GiB\n```", "there is no examples/none.json"),
        ("```\ncd x && blockproof fuzz --nope\n```", "--nope"),
        ("```\nfound; repeat it: blockproof replay findings/a.json --nope\n```", "--nope"),
        ("```yaml\n- run: blockproof fuzz --nope\n```", "--nope"),
        ("say `blockproof fuzz\n--nope`", "--nope"),
        ("say `fuzz --nope`", "--nope"),
        ("say `blockproof fuz --json`", "No such command 'fuz'"),
        ("```\nblokproof fuzz --json\n```", "blokproof: is no program"),
        ("```\nblockproof fuzz\n\nblokproof replay\n```", "blokproof: is no program"),
        ("\n    blockproof fuzz --nope\n", "--nope"),
        ("```\nmake tests\n```", "no target 'tests'"),
        ("```\npython benchmarks/none.py\n```", "there is no benchmarks/none.py"),
        ("```\npython benchmarks/hostile.py --trace 3\n```", "no option --trace"),
        ("```\npip install '/path/to/blockproof[proofs]'\n```", "no extra 'proofs'"),
        ("```\npytest --blockproof-second 3\n```", "no --blockproof-second"),
    ],
)
def test_a_wrong_command_is_noticed(text, told):
    (said,) = wrong_on(text)
    assert told in said


@pytest.mark.parametrize(
    "text",
    [
        "```\nblockproof fuzz --target impl --seconds 3   # a comment --nope\n```",
        "```\n$ A=b blockproof fuzz --json | head > x.txt\nno blockproof here --nope\n```",
        "```python\nblockproof = 1\n```",
        "`blockproof fuzz`, `fuzz --target`, `blockproof replay TRACE --show`, `blockproof ...`, `--nope`",
    ],
)
def test_a_right_one_is_not(text):
    assert wrong_on(text) == []


def test_scripts_of_commits_are_there_and_nowhere_else():
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    named = {(commit, script) for page in EVERY_PAGE for script, commit in of_commits(page).items()}
    assert len(named) > 10
    assert [script for _, script in named if (ROOT / script).exists()] == []
    for commit in {commit for commit, _ in named}:
        words = ["git", "ls-tree", "--name-only", commit, "benchmarks/"]
        asked = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if asked.returncode == 0:  # else it is a checkout without its history
            assert {script for of, script in named if of == commit} <= set(asked.stdout.split())


def test_only_the_script_of_a_commit_that_the_page_names_may_be_gone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("by `git show 0123abc:benchmarks/gone.py`\n\n```\npython benchmarks/gone.py --any\n```\n")
    (show, run) = sorted(commands(page.read_text()), key=lambda one: one.text)
    assert (problem(show, page), problem(run, page)) == ("", "")
    assert problem(run, PAGE) == "there is no benchmarks/gone.py"


def test_a_command_that_nobody_has_classified_is_noticed():
    assert how_tried("docs/guide/new.md", "blockproof fuzz --target impl --seconds 3") == ""
    assert how_tried("docs/guide/new.md", "blockproof fuzz --target vllm==0.33.0") == "engine"


def test_an_option_that_nothing_has_is_noticed():
    assert unknown_options("a `--json` and a\n`--jason`") == [(2, "--jason")]


def test_commands_are_found_where_they_stand():
    text = "# x\n\n```console\n$ blockproof fuzz \\\n    --json\nblockproof is run\n```\n\nsay `make\nlint`\n"
    assert list(commands(text)) == [
        Shown(4, "blockproof fuzz      --json", True, ("blockproof is run",)),
        Shown(9, "make lint", False),
    ]


def test_the_output_of_a_command_goes_to_the_next_one():
    text = "```\n$ blockproof fuzz \\\n    --json\na\n\nb\n$ make\n```\n"
    assert [one.output for one in commands(text)] == [("a", "", "b"), ()]


@pytest.mark.parametrize(
    ("shown", "printed", "line"),
    [
        (["a", "...", "d in 1.5 s"], "a\nb\nc\nd in 20 s\n", ""),
        (["a ..."], "a b c\n", ""),
        (["a", "..."], "a\n", ""),
        (["a", "c"], "a\nb\nc\n", "c"),
        (["b"], "a\nb\nc\n", ""),
        (["a", "c"], "a\nb\na\nc\n", ""),
        (["c", "...", "a"], "a\nb\nc\n", "a"),
        (["...", "c"], "a\nb\n", "c"),
        (["3 blocks"], "4 blocks\n", "3 blocks"),
    ],
)
def test_output_is_compared_line_by_line(shown, printed, line):
    assert differs(shown, printed) == line
