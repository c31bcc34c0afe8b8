"""What pages show besides commands: Python that compiles and runs, documents that are read, places that are right."""

import ast
import inspect
import json
import re
import textwrap
import tomllib
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
import yaml
from blockproof.fuzz import kv_cache_machine
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.testing.pytest_options import OPTIONS
from blockproof.fuzz.traces.known_file import read_known
from blockproof.fuzz.traces.trace_file import load_trace
from jsonschema import Draft202012Validator

from .commands import SHELL
from .pages import DOCS, EVERY_NAME, EVERY_PAGE, ROOT, blocks

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
CHECKED = (*SHELL, "python", "json", "toml", "yaml", "text", "{eval-rst}")
"""Languages of blocks that a test reads; `text` is what a program above prints, and from the last the site is built."""
NOT_EXECUTED = {
    "docs/evidence/patches.md": "needs vLLM 0.23.0 and vllm-ascend 0.23.0.post1",
    "docs/guide/device.md": "tests/impl/test_device_tables.py",
    "docs/guide/engines.md": "tests/docs/test_guide.py",
    "docs/guide/fast.md": "tests/impl/test_compiled.py",
    "docs/guide/patches.md": "needs vLLM 0.23.0 and kvcached 0.1.6",
    "docs/guide/under-vllm.md": "needs vLLM 0.23.0",
    "docs/guide/your-engine.md": "tests/docs/test_guide.py",
    "docs/api/": "tests/docs/test_api_pages.py",
    "docs/concepts/": "tests/docs/test_concepts.py",
}
"""Pages, or folders of them, with a whole program that is not executed here: why not, or the test that does."""
EXECUTED = {"docs/guide/hypothesis.md", "docs/guide/pytest.md", "docs/guide/verify.md"}


def with_blocks(*languages):
    """Name and block of every block in these languages. Formulas of theorems are not Python, they only look like it."""
    for page in EVERY_PAGE:
        name = str(page.relative_to(ROOT))
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language in languages and not name.startswith("docs/reference/theorems/"):
                yield name, "\n".join(block.lines)


def the_block(name, language, number=0):
    return [text for page, text in with_blocks(language) if page == name][number]


def unchecked(text):
    """Blocks of a page that nothing here would look into: another language, or Python that does not say that it is."""
    python = re.compile(r"(from [\w.]+ )?import [\w.]+|def \w+\(|class \w+[(:]")
    return [
        block.line
        for block in blocks(text)
        if block.language not in CHECKED or (not block.language and any(map(python.match, block.lines)))
    ]


@pytest.mark.parametrize("page", EVERY_PAGE, ids=EVERY_NAME)
def test_every_block_is_in_a_language_that_is_checked(page):
    assert unchecked(page.read_text(encoding="utf-8")) == [], "name the language behind the fence, as in ```python"


@pytest.mark.parametrize("text", ["```rust\nx\n```", "```\nfrom a import b\n```", "\n    import a\n"])
def test_a_block_that_nothing_looks_into_is_noticed(text):
    assert unchecked(text) == [1]


# Python.


def test_python_compiles_and_whole_programs_are_executed_somewhere():
    whole = set()
    for name, text in with_blocks("python"):
        tree = ast.parse(textwrap.dedent(text), name)
        if any(isinstance(statement, ast.Import | ast.ImportFrom) for statement in tree.body):
            whole.add(name)
    said = (*EXECUTED, *NOT_EXECUTED)
    assert [name for name in whole if not name.startswith(said)] == [], "execute it in a test, and say which"
    there = {name for name in said if (ROOT / name).exists()}
    assert [name for name in there if not any(page.startswith(name) for page in whole)] == []
    tests = [test for name, test in NOT_EXECUTED.items() if name in there and test.endswith(".py")]
    assert [test for test in tests if not (ROOT / test).exists()] == []


def test_the_state_machine_of_the_page_is_made():
    names: dict[str, Any] = {"settings": hypothesis.settings}
    exec(the_block("docs/guide/hypothesis.md", "python", 0), names)
    exec(the_block("docs/guide/hypothesis.md", "python", 2), names)
    assert names["TestMyCore"].settings.max_examples == 1000


def test_a_change_of_our_own_core_is_judged_as_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(textwrap.dedent(the_block("docs/guide/verify.md", "python")))
    words = ["verify", "--target", "impl", "--target", "mine.py:make_target", "--seed", "1", "--no-proofs"]
    assert main([*words, "--operations", "12000"]) == 1
    assert "introduced" in capsys.readouterr().out


def test_every_argument_of_a_state_machine_is_on_the_page():
    page = (DOCS / "guide" / "hypothesis.md").read_text(encoding="utf-8")
    table = page[page.index("| argument of `kv_cache_machine`") :].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [*inspect.signature(kv_cache_machine).parameters]


def test_the_profiles_of_the_page_are_made(monkeypatch):
    made = {}
    keeps = SimpleNamespace(register_profile=lambda name, **given: made.update({name: given}))
    monkeypatch.setattr(hypothesis, "settings", keeps)
    exec(the_block("docs/guide/pytest.md", "python"), {})
    assert set(made) == {"dev", "ci"}


# Documents.


def test_json_toml_and_yaml_are_read():
    reads = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
    read = [reads[language](text) for language in reads for _, text in with_blocks(language)]
    assert len(read) >= 7
    assert all(isinstance(document, dict) for document in read)


def test_the_trace_of_the_page_is_one():
    text = the_block("docs/reference/trace-format.md", "json")
    assert load_trace(text).trace.operations
    schema = json.loads((DOCS / "reference" / "trace.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(json.loads(text))


def test_the_list_of_layers_of_the_page_can_be_planned(tmp_path, capsys):
    (tmp_path / "layers.json").write_text(the_block("docs/guide/plan.md", "json"), encoding="utf-8")
    assert main(["plan", str(tmp_path / "layers.json"), "--memory", "20GiB"]) == 0
    assert "fits: " in capsys.readouterr().out


def test_the_known_finding_of_the_page_is_one(tmp_path):
    (tmp_path / "known.toml").write_text(the_block("docs/guide/triage.md", "toml"), encoding="utf-8")
    (known,) = read_known(tmp_path / "known.toml")
    assert known.property == "S14"


def test_the_settings_of_the_page_are_those_of_the_plugin():
    set_there = tomllib.loads(the_block("docs/guide/pytest.md", "toml"))["tool"]["pytest"]["ini_options"]
    assert set_there.keys() <= {f"blockproof_{option.name}" for option in OPTIONS}
    page = (DOCS / "guide" / "pytest.md").read_text(encoding="utf-8")
    assert [option.name for option in OPTIONS if f"| `--blockproof-{option.name}" not in page] == []


# Jobs for CI.


def wrong_in_job(document):
    """What a job says that neither our action nor `blockproof ci` takes."""
    problems = []
    if isinstance(document, list):
        return [said for inner in document for said in wrong_in_job(inner)]
    if not isinstance(document, dict):
        return problems
    given = document.get("with") or {}
    if re.search(r"/blockproof@", str(document.get("uses", ""))):
        problems += [f"the action has no input {name}" for name in given if name not in ACTION["inputs"]]
        required = [name for name, about in ACTION["inputs"].items() if about.get("required")]
        problems += [f"the action needs {name}" for name in required if name not in given]
    variables = {"BLOCKPROOF", *ACTION["runs"]["steps"][3]["env"]}
    named = [name for name in document if str(name).startswith("BLOCKPROOF")]
    problems += [f"nothing reads {name}" for name in named if name not in variables]
    return problems + [said for inner in document.values() for said in wrong_in_job(inner)]


def test_jobs_give_the_action_what_it_takes():
    jobs = [yaml.safe_load(text) for _, text in with_blocks("yaml")]
    assert len(jobs) >= 3
    assert [said for job in jobs for said in wrong_in_job(job)] == []


@pytest.mark.parametrize(
    ("changed", "into", "said"),
    [
        ("corpus:", "corpse:", "the action has no input corpse"),
        ("target: my_target:make_target", "seed: 1", "the action needs target"),
    ],
)
def test_a_job_with_another_input_is_noticed(changed, into, said):
    text = the_block("docs/guide/ci.md", "yaml")
    assert changed in text
    assert wrong_in_job(yaml.safe_load(text.replace(changed, into))) == [said]


def test_a_variable_that_nothing_reads_is_noticed():
    text = the_block("docs/guide/ci.md", "yaml", 1).replace("BLOCKPROOF_FLOORS", "BLOCKPROOF_FLOOR")
    assert wrong_in_job(yaml.safe_load(text)) == ["nothing reads BLOCKPROOF_FLOOR"]


# Places in our code, as findings on pages show them.

PLACE = re.compile(r'adapter +(\w+\.py):(\d+), in ([\w.]+)|"file": "(\w+\.py)", "line": (\d+), "function": "([\w.]+)"')


def wrong_places(text):
    """Places on a page that are not where the function is. Places in engines are not looked at."""
    problems = []
    for match in PLACE.finditer(text):
        file, line, function = (part for part in match.groups() if part)
        for path in (ROOT / "fuzz" / "adapters").rglob(file):
            nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
            there = [node for node in nodes if isinstance(node, ast.FunctionDef) and function.endswith(node.name)]
            if not any(node.lineno <= int(line) <= (node.end_lineno or 0) for node in there):
                problems.append(match[0])
    return problems


@pytest.mark.parametrize("name", ["README.md", "docs/guide/triage.md", "docs/reference/trace-format.md"])
def test_places_in_our_adapters_are_where_a_page_says(name):
    assert wrong_places((ROOT / name).read_text(encoding="utf-8")) == []


def test_a_wrong_place_is_noticed():
    page = (DOCS / "guide" / "triage.md").read_text(encoding="utf-8")
    assert wrong_places(re.sub(r"(?<=style\.py:)\d+", "9", page)) == [
        "adapter  style.py:9, in VllmStyleTarget._allocate"
    ]
