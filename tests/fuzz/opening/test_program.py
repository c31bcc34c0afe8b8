"""A target that is a program, asked over its standard input and output."""

import json
import shlex
import shutil
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.names import Program, parsed
from blockproof.fuzz.opening.process import ChildLimits
from blockproof.fuzz.opening.program import ProgramTarget, complete
from blockproof.fuzz.opening.targets import check_spec, open_calculator, open_target
from blockproof.fuzz.targets.base import TargetLostError, TargetUnavailableError
from blockproof.model.ops import Allocate, Done, Failed, Free, Group, Refused, Shape, Submit

from ...docs.pages import DOCS, ROOT

SHAPE = Shape((Group("full", 4),), 8, 64, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=64)
SOURCE = ROOT / "examples" / "c-engine" / "target.c"
HELLO = {"protocol": 1, "name": "fake", "hides": ["usage", "stats"], "lacks": ["Reset"]}
STATE = {
    "free": [1], "num_free": 1, "ref_cnt": [0, 0], "tables": [{"a": [1]}], "registered": [{}], "labels": [None, 3],
    "earliest": [None, 1], "num_identities": 1, "events": [["cleared"]], "new_block_ids": [[1]],
}  # fmt: skip
PROGRAM = """
import json, os, sys, time
print(json.dumps({hello}), flush=True)
STATE = {state}
for line in sys.stdin:
    asked = json.loads(line)
    if "start" in asked:
        answer = {{"outcome": "Done", "snapshot": STATE}}
    else:
        answer = None
{body}
    if answer is not None:
        print(json.dumps(answer), flush=True)
"""


def test_a_program_is_named_as_on_the_command_line():
    assert ProgramTarget("program:./my_target --fast").name == "program:./my_target --fast"
    for name in ("impl", "program:", "program:'"):
        with pytest.raises(ValueError, match="program:"):
            ProgramTarget(name)


@pytest.fixture
def program(tmp_path):
    """Makes a target of a program that answers a step with what these lines put into `answer`."""
    made = []

    def make(body="answer = {'outcome': 'Done', 'snapshot': STATE}", hello=HELLO, **limits):
        body = textwrap.indent(textwrap.dedent(body), " " * 8)
        (tmp_path / "fake.py").write_text(PROGRAM.format(hello=hello, state=STATE, body=body))
        made.append(
            ProgramTarget(Program("program:fake", (sys.executable, f"{tmp_path}/fake.py")), ChildLimits(**limits))
        )
        return made[-1]

    yield make
    for target in made:
        target.close()


def test_answers_become_outcomes_and_snapshots_and_what_is_hidden_may_be_left_out(program):
    target = program(
        """
        asked = asked["step"]
        value = [asked["op"], [asked["new_tokens"]]]
        answer = {"outcome": "Done", "value": value, "snapshot": STATE, "copies": [[1, 2]]}
        """
    )
    assert (target.hides, target.lacks) == ({"usage", "stats"}, {"Reset"})
    assert target.version == "fake"
    outcome, state = target.start(SHAPE)
    assert (outcome, state.tables, state.events, state.usage) == (Done(), [{"a": [1]}], (("cleared",),), 0.0)
    assert target.step(Allocate("a", 3))[0] == Done(("Allocate", (3,)))
    assert target.copies == ((1, 2),)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"outcome": "Refused"}, Refused()),
        ({"outcome": "Failed", "error": "ValueError", "message": "too many"}, Failed("ValueError")),
        ({"outcome": "Failed", "error": "ValueError"}, Failed("ValueError")),
    ],
)
def test_refusals_and_failures(program, answer, outcome):
    target = program(f"answer = {answer} | {{'snapshot': STATE}}")
    target.start(SHAPE)
    got, _ = target.step(Free("a"))
    assert got == outcome
    if "message" in answer:
        assert got.cause.message == "too many"


def test_every_field_is_sent_even_at_its_default():
    sent = complete(Submit("a", (1, 2)))
    shape: Any = complete(SHAPE)
    assert sent == {
        "op": "Submit", "request": "a", "prompt": [1, 2], "adapter": None, "adapter_version": "", "salt": None,
        "items": [], "embeds": None, "skip_lookup": False, "reports_hits": False,
    }  # fmt: skip
    assert shape["groups"][0]["mamba_mode"] == "none"
    assert "op" not in shape


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("print('hello')", "protocol", "a line that is no JSON: 'hello'; print anything else to the standard error"),
        ("answer = 1", "protocol", "expected an object, got 1"),
        ("answer = {}", "protocol", "expected one of Done, Refused, Failed"),
        ("answer = {'outcome': 'Dune'}", "protocol", "expected one of Done, Refused, Failed, got 'Dune'"),
        ("answer = {'outcome': 'Failed', 'snapshot': STATE}", "protocol", "Failed wants the kind of error as a text"),
        ("answer = {'outcome': 'Done'}", "protocol", "has no snapshot"),
        ("answer = {'outcome': 'Done', 'state': 1}", "protocol", "unknown field 'state'"),
        ("answer = {'outcome': 'Done', 'snapshot': {}}", "protocol", "the snapshot has no 'free'; show it, or name"),
        ("answer = {'outcome': 'Done', 'snapshot': []}", "protocol", "expected an object with its fields"),
        ("answer = {'outcome': 'Done', 'snapshot': {'fre': 1}}", "protocol", "unknown field 'fre'"),
        ("sys.exit(7)", "crash", "exit status 7"),
        ("os.abort()", "crash", "SIGABRT"),
        ("print('last words', file=sys.stderr, flush=True); sys.exit(7)", "crash", "last words"),
        ("sys.stdout.write('{'); sys.stdout.flush(); sys.exit(1)", "crash", "in the middle of a line"),
        ("time.sleep(60)", "hang", "no answer within 0.5 s to {'step': {'op': 'Free'"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(program, body, kind, says):
    target = program(body, operation_s=0.5)
    target.start(SHAPE)
    with pytest.raises(TargetLostError) as caught:
        target.step(Free("a"))
    assert caught.value.kind == kind
    assert says in caught.value.detail
    assert target.start(SHAPE)[0] == Done()  # it is launched again


def test_more_lines_than_were_asked_for_are_noticed(program):
    target = program(
        "print(json.dumps({'outcome': 'Done', 'snapshot': STATE}) + chr(10) + 'debug', flush=True)",
    )
    target.start(SHAPE)
    target.step(Free("a"))
    with pytest.raises(TargetLostError, match="more than one line as an answer: 'debug"):
        target.step(Free("a"))


def test_growth_of_its_memory_is_noticed(program):
    target = program(
        "keep = globals().setdefault('keep', []); keep.append(bytearray(1 << 20)); "
        "answer = {'outcome': 'Done', 'snapshot': STATE}",
        growth_bytes=64 << 20,
    )
    target.start(SHAPE)
    with pytest.raises(TargetLostError) as caught:
        [target.step(Free("a")) for _ in range(600)]
    assert caught.value.kind == "memory"


@pytest.mark.parametrize(
    ("hello", "says"),
    [
        ({}, "it speaks protocol nothing, we speak 1"),
        (HELLO | {"protocol": 2}, "it speaks protocol 2, we speak 1"),
        (HELLO | {"hides": "events"}, "'hides' of the first line is \"events\"; expected an array"),
        (HELLO | {"hides": ["event"]}, "did you mean 'events'?"),
        (HELLO | {"name": 1}, "'name' of the first line is 1; expected a text"),
        (HELLO | {"colour": 1}, "unknown field 'colour'"),
        (HELLO | {"block_sizes": [0]}, "a size is a number of tokens, 1 or more"),
    ],
)
def test_a_first_line_that_cannot_be_used_is_said(program, hello, says):
    with pytest.raises(TargetUnavailableError) as caught:
        program(hello=hello).start(SHAPE)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_sizes_that_a_program_builds_are_passed_on(program):
    target = program(hello=HELLO | {"block_sizes": [16]})
    target.start(SHAPE)
    assert tuple(target.block_sizes) == (16,)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("program:./not_there", "cannot run ./not_there: No such file or directory; is it built"),
        (f"program:{sys.executable} -c 1", "did not come up (crash): exit status 0"),
        (f"program:{sys.executable} -c 'print(1)'", "its first line cannot be used: expected an object, got 1"),
    ],
)
def test_a_program_that_does_not_come_up_is_unavailable(spec, says):
    with pytest.raises(TargetUnavailableError) as caught:
        open_target(spec).start(SHAPE)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_specs_of_programs():
    assert parsed("program:./a 'b c' d").command == ("./a", "b c", "d")
    with pytest.raises(ValueError, match=r"write, for example, program:\./my_target"):
        check_spec("program:")
    with pytest.raises(ValueError, match="cannot be split into words"):
        check_spec("program:'a")
    with pytest.raises(ValueError, match="programs are targets only"):
        open_calculator("program:./a")


# The example in C.


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiles the example, with these options of the compiler; returns the folder and its name there."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("my programs")

    def compile_it(name, *options):
        subprocess.run(
            [compiler, "-O1", "-Wall", "-Wextra", "-Werror", *options, "-o", folder / name, SOURCE], check=True
        )
        return f"program:{shlex.quote(str(folder / name))}"

    return compile_it


def fuzzed(spec, operations):
    words = ["fuzz", "--target", spec, "--attention", "full", "--oracle", "shadow,contract,liveness", "--seed", "1"]
    return main([*words, "--operations", str(operations)])


def test_the_core_in_c_is_fuzzed_and_nothing_is_found(compiled, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fuzzed(compiled("c_target"), 4000) == 0
    out = capsys.readouterr().out
    assert all(f"contract: {situation}" in out for situation in ("hit", "S2 checked", "S7 checked", "S8 checked"))


@pytest.mark.slow
def test_a_mistake_in_c_is_found_and_its_command_and_test_repeat_it(compiled, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fuzzed(compiled("c_bug", "-DBUG"), 20_000) == 1
    out = capsys.readouterr().out
    assert "S7 of the contract is violated" in out
    command = next(line for line in out.splitlines() if line.startswith("repeat the finding: "))
    assert main(shlex.split(command.partition(": ")[2])[1:]) == 1
    test = next((tmp_path / "findings").glob("test_*.py"))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test], capture_output=True, text=True
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "S7" in ran.stdout


def test_the_example_leaks_nothing_and_reads_nothing_it_may_not(compiled):
    """Under the sanitizers of the compiler, which end the program at the first mistake of memory."""
    try:
        spec = compiled("c_checked", "-fsanitize=address,undefined", "-fno-sanitize-recover", "-g")
    except subprocess.CalledProcessError:
        pytest.skip("the compiler has no sanitizers")
    assert fuzzed(spec, 1500) == 0


def test_the_page_shows_lines_that_are_spoken(program):
    """The lines on the page of the protocol are read and answered as it says."""
    page = (DOCS / "reference" / "pipe-protocol.md").read_text(encoding="utf-8")
    page, _, _ = page.partition("## An engine to be simulated")  # test_engines
    lines = [line for line in page.splitlines() if line.startswith(("> {", "< {"))]
    assert len(lines) >= 6
    asked = [json.loads(line[2:]) for line in lines if line.startswith("> ")]
    answers = [line[2:].encode() for line in lines if line.startswith("< ")]
    from blockproof.fuzz.findings.ops_json import operation_from_json, shape_from_json

    for message in asked:
        ((kind, document),) = message.items()
        read = shape_from_json(document) if kind == "start" else operation_from_json(document)
        assert complete(read) == document
    from blockproof.fuzz.opening import program as module

    hello = module.hello_of(answers[0])
    for answer in answers[1:]:
        module.answer_of(answer, 1, frozenset(hello["hides"]))


@pytest.mark.slow
def test_bisect_builds_the_program_of_each_commit(compiled, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fuzzed(compiled("c_bug_of_a_commit", "-DBUG"), 20_000) == 1
    trace = next(path for path in (tmp_path / "findings").glob("s7_*.json") if "whole" not in path.name)
    repository = tmp_path / "engine"
    repository.mkdir()

    def git(*words):
        identity = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *words], cwd=repository, check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main")
    for name in ("core.h", "target.c", "make_target.py"):
        shutil.copy(SOURCE.with_name(name), repository)
    core = repository / "core.h"
    (repository / ".gitignore").write_text("c_target\n")
    texts = [
        core.read_text(),
        core.read_text() + "\n",
        "#define BUG\n" + core.read_text(),
        "#define BUG\n\n" + core.read_text(),
    ]
    for number, text in enumerate(texts):
        core.write_text(text)
        git("add", "--all")
        git("commit", "--quiet", "--message", f"change {number}")
        git("tag", f"v{number}")
    capsys.readouterr()
    words = ["--git", "v0..v3", "--repo", "engine", "--target", "engine/make_target.py:make_target"]
    code = main(["bisect", str(trace), *words, "--oracle", "shadow,contract"])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "first bad commit" in told.out
    assert "change 2" in told.out
