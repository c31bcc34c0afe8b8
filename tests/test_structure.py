"""What holds of the repository as a whole: who imports whom, what is installed, and what stands in no file."""

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.cli.main import app

from .import_graph import imported

ROOT = Path(__file__).parents[1]
NAME = "blockproof"
FOLDERS = ("model", "impl", "fuzz", "proofs")
DATA = (
    "examples",
    "docs/evidence/between-deviations",
    "docs/evidence/deviations",
    "docs/evidence/findings",
    "docs/evidence/today-deviations",
    "docs/reference/theorems",
    "tests/regressions",
)
"""Installed under the same path, without code: what commands read."""
MAY_IMPORT = {"model": {"model"}, "impl": {"impl"}, "proofs": {"proofs", "model", "impl"}, "fuzz": {"fuzz", "model"}}
"""An implementation that borrowed the model's rules would agree with it by construction, so nobody borrows."""
PROOF_COMMANDS = ("fuzz/cli/prove.py",)
"""The command that runs what is in `proofs`."""
SURFACE = ROOT.parent / "shared" / "spec" / "api-surface.json"


def modules(folder: str) -> Iterator[Path]:
    """Python files of a folder, relative to the repository."""
    return (path.relative_to(ROOT) for path in sorted((ROOT / folder).rglob("*.py")))


def test_no_refusal_is_an_assert():
    """`python -O` leaves asserts out, and an engine may run so: what a core refuses, it raises."""
    for path in (*modules("impl"), *modules("fuzz/faults")):
        nodes = ast.walk(ast.parse((ROOT / path).read_text()))
        lines = [node.lineno for node in nodes if isinstance(node, ast.Assert)]
        assert not lines, f"{path}: raise AssertionError in lines {lines}"


def wrong_arrows(path: Path, source: str) -> list[str]:
    """What a file imports against the rules."""
    folder, in_adapter = path.parts[0], path.parts[:2] == ("fuzz", "adapters")
    problems = []
    for name in imported(path, source):
        head, *rest = name.split(".")
        ours = head in (NAME, "?") and rest
        allowed = MAY_IMPORT[folder] | ({"proofs"} if str(path) in PROOF_COMMANDS else set())
        if ours and rest[0] in FOLDERS and rest[0] not in allowed:
            problems.append(f"{path} imports {name}")
        if folder == "model" and not ours and head not in sys.stdlib_module_names:
            problems.append(f"{path} imports {name}, which is not in the standard library")
    if folder == "fuzz" and not in_adapter:
        names = re.findall(r"\bvllm\.[a-z_]\w*", source)
        problems += [f"{path} names {name}, which only an adapter knows" for name in names]
        texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
        asked = [text for text in texts if isinstance(text, str) and re.search(r"\.impl\b", text)]
        problems += [f"{path} names {text!r}: only an adapter reaches the core" for text in asked]
    return problems


@pytest.mark.parametrize("folder", FOLDERS)
def test_arrows_between_the_folders(folder):
    paths = list(modules(folder))
    assert paths
    assert [problem for path in paths for problem in wrong_arrows(path, (ROOT / path).read_text())] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("model/core.py", "from ..impl import Request"),
        ("model/core.py", "from .. import impl"),
        ("model/core.py", "import blockproof.fuzz.workload.operations"),
        ("model/core.py", "def late():\n    import numpy.random"),
        ("model/core.py", "from msgspec import Struct"),
        ("impl/pool/free_queue.py", "from ...model.arith import cdiv"),
        ("impl/pool/free_queue.py", "from blockproof.model import arith"),
        ("impl/pool/free_queue.py", "import importlib\nimportlib.import_module('blockproof.model')"),
        ("proofs/arith.py", "from ..fuzz.shapes import ATTENTION"),
        ("fuzz/engines/seeded.py", "from ...impl.request import Request"),
        ("fuzz/adapters/impl.py", "from ...impl import Request"),
        ("fuzz/adapters/impl.py", "if True:\n    from ...proofs import arith"),
        ("fuzz/cli/prove.py", "from ...impl import Request"),
        ("fuzz/engines/seeded.py", "from importlib import import_module\nimport_module('blockproof.impl')"),
        ("fuzz/engines/seeded.py", "core = find(f'{__name__}.impl')"),
        ("fuzz/engines/seeded.py", "NAMES = ('vllm.v1.core.block_pool',)"),
    ],
)
def test_a_wrong_arrow_is_noticed(path, source):
    assert len(wrong_arrows(Path(path), source)) >= 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("model/core.py", "from . import arith\nfrom .ops import NULL\nfrom collections import Counter"),
        ("impl/request.py", "import numpy\nfrom .hashing.block_hash import BlockHash"),
        ("proofs/arith.py", "from ..model.arith import cdiv\nfrom ..impl import Request\nimport z3"),
        (
            "fuzz/engines/seeded.py",
            "from ...model import ops\nfrom ..targets.base import Target\nHELP = 'impl, vllm==0.23.0'",
        ),
        ("fuzz/adapters/vllm/binding.py", "from ....model.ops import Shape\nNAMES = 'vllm.v1.request'"),
        ("fuzz/cli/prove.py", "from ...proofs.theorems import THEOREMS"),
    ],
)
def test_a_right_arrow_is_not(path, source):
    assert wrong_arrows(Path(path), source) == []


def test_our_core_is_reached_by_a_text_in_one_module():
    """As every other core is: so the harness can be installed into an environment that does not have it."""
    found = [str(path) for path in modules("fuzz") if re.search(r"\}\.impl\b", (ROOT / path).read_text())]
    assert found == ["fuzz/adapters/impl_package.py"]


ENGINES = re.compile(rf"\b({'|'.join(families())})\b")


REPORT = re.compile(r"\b[\w.-]+/[\w.-]+#\d+\b")


def names_an_engine(source):
    """Whether the source names an engine other than in the name of a report, `vllm-project/vllm#39734`."""
    return ENGINES.search(REPORT.sub("", source)) is not None


def test_engines_are_named_in_their_adapters_only():
    outside = [path for path in modules("fuzz") if path.parts[:2] != ("fuzz", "adapters")]
    assert [str(path) for path in outside if names_an_engine((ROOT / path).read_text())] == []


@pytest.mark.parametrize(
    "source",
    ["spec.startswith('vllm')", '"""Such as `vllm==0.23.0`."""', "import sglang", "vllm-project/vllm", "a/b#1 vllm"],
)
def test_a_named_engine_would_be_noticed(source):
    assert names_an_engine(source)


def test_reports_may_be_named():
    assert not names_an_engine('"""Found by lockstep (vllm-project/vllm#39734, sgl-project/sglang#1)."""')


# How long things are.

LINES_OF_A_FUNCTION, PARAMETERS, LINES_OF_A_FILE = 70, 7, 450
SHORT = ("fuzz", "proofs")
"""The packages that keep to these; the signatures of `impl` are those of the reference."""
LONG_FILES: set[str] = set()


def commands() -> set[str]:
    """Functions of the command line, as PATH:NAME; an option is a parameter there."""
    groups = [app, *(group.typer_instance for group in app.registered_groups if group.typer_instance)]
    calls = [command.callback for group in groups for command in group.registered_commands]
    calls += [group.registered_callback.callback for group in groups if group.registered_callback]
    return {f"{Path(*call.__module__.split('.')[1:])}.py:{call.__name__}" for call in calls if call is not None}


def too_large(path: Path, source: str, excepted: Collection[str] = ()) -> list[str]:
    """Functions of too many lines or named parameters, `self` not counted; those excepted may have any number."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            names = [named.arg for named in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            parameters = len(names) - (names[:1] in (["self"], ["cls"]))
            if lines > LINES_OF_A_FUNCTION:
                problems.append(f"{path}:{node.name} has {lines} lines")
            if parameters > PARAMETERS and f"{path}:{node.name}" not in excepted:
                problems.append(f"{path}:{node.name} has {parameters} parameters")
    return problems


@pytest.mark.parametrize("folder", SHORT)
def test_functions_and_files_are_short(folder):
    excepted = commands()
    assert {"fuzz/cli/fuzz.py:fuzz", "fuzz/cli/targets.py:install"} <= excepted
    paths = list(modules(folder))
    assert [problem for path in paths for problem in too_large(path, (ROOT / path).read_text(), excepted)] == []
    long = {str(path) for path in paths if len((ROOT / path).read_text().splitlines()) > LINES_OF_A_FILE}
    assert long == {name for name in LONG_FILES if name.startswith(f"{folder}/")}, "shorten it, or take it off the list"


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        ("def f(self, a, b, c, d, e, f, g): pass", 0),
        ("def f(a, b, c, d, e, *, f, g, h): pass", 1),
        ("def f(a, b, c, d, e, f, *more, **options): pass", 0),
        ("def f():\n" + "    f()\n" * 69, 0),
        ("def f():\n" + "    f()\n" * 70, 1),
        ("class A:\n    async def f(self):\n" + "        f()\n" * 70, 1),
    ],
)
def test_what_is_too_large_is_noticed(source, problems):
    assert len(too_large(Path("fuzz/x.py"), source)) == problems


def test_only_commands_may_have_many_parameters():
    source = "def fuzz(a, b, c, d, e, f, g, h): pass\ndef other(a, b, c, d, e, f, g, h): pass"
    assert too_large(Path("fuzz/cli/fuzz.py"), source, commands()) == ["fuzz/cli/fuzz.py:other has 8 parameters"]


# What is installed.


def test_every_package_is_installed_with_what_it_reads():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {
        f"{NAME}.{'.'.join(path.parts[:-1])}"
        for folder in FOLDERS
        for path in modules(folder)
        if path.name == "__init__.py"
    }
    packages |= {f"{NAME}.{folder.replace('/', '.').replace('-', '_')}" for folder in DATA}
    assert set(project["tool"]["setuptools"]["packages"]) == packages
    data_of = project["tool"]["setuptools"]["package-data"]
    patterns = {pattern.removeprefix("*") for pattern in data_of["*"]}
    for folder in DATA:
        endings = patterns | {end.removeprefix("*") for end in data_of.get(f"{NAME}.{folder.replace('/', '.')}", ())}
        assert {path.suffix for path in (ROOT / folder).iterdir() if path.is_file()} <= endings, folder
    for folder in FOLDERS:
        assert files(f"{NAME}.{folder}").joinpath("py.typed").is_file(), folder
        for path in (ROOT / folder).rglob("*"):
            data = path.is_file() and path.suffix not in (".py", ".pyc")
            assert not data or path.name == "py.typed" or path.suffix in patterns, f"{path} would not be installed"


def test_the_command_starts_at_what_is_installed():
    (command,) = entry_points(group="console_scripts", name=NAME)
    assert command.load() is importlib.import_module(f"{NAME}.fuzz.cli.main").main


# The public API of vLLM's core.


@pytest.mark.skipif(not SURFACE.exists(), reason="the list of names is not part of this repository")
def test_our_core_offers_every_public_name_that_programs_import():
    impl = importlib.import_module(f"{NAME}.impl")
    impl.init_none_hash(impl.sha256)  # sets NONE_HASH; before, it cannot be imported there either
    missing = set()
    for module, names in json.loads(SURFACE.read_text())["modules"].items():
        ours = importlib.import_module(f"{NAME}.impl.{module.rpartition('.')[2]}")
        missing |= {name for name in names if not name.startswith("_") and not hasattr(ours, name)}
    assert missing == set()


# What stands in no file.


def kept_files() -> list[Path]:
    """What is, or would be, under version control; all but hidden folders where git is not at hand."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        listed = [name for name in listed if not any(part.startswith(".") for part in Path(name).parts)]
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


HOME_PATH = re.compile(r"(?<![\w.$}])/(?:home|root|Users)/\w")


def test_no_file_names_a_place_on_somebodys_machine():
    paths = kept_files()
    assert len(paths) > 50
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        found = HOME_PATH.search(text) or (str(ROOT) in text and str(ROOT))
        assert not found, f"{path.relative_to(ROOT)}: {found}"


@pytest.mark.parametrize("name", ["home", "root", "Users"])
def test_such_a_place_would_be_noticed(name):
    assert HOME_PATH.search(f"see '/{name}/ada/notes'")


@pytest.mark.parametrize("text", ["~/notes", "$HOME/notes", "example.org/home/notes", "tree/root/leaf"])
def test_other_paths_are_allowed(text):
    assert not HOME_PATH.search(text)


ONE_SITTING = {"model": 2_116, "model/features": 1_159, "model/config": 450, "model/pieces": 300, "model/kinds": 160}
"""Lines of the specification that somebody who wants to know what a core must do has to read, of the arithmetic of
configurations, and of pieces by themselves. What is new there has to replace something. JSON lies beside."""


@pytest.mark.parametrize("folder", ONE_SITTING)
def test_the_specification_is_read_in_one_sitting(folder):
    files = [path for path in (ROOT / folder).glob("*.py") if not path.name.endswith("_json.py")]
    assert sum(len(path.read_text().splitlines()) for path in files) <= ONE_SITTING[folder]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_public_class_has_a_name_of_its_own(folder):
    where: dict[str, list[str]] = {}
    for path in modules(folder):
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(path.as_posix())
    assert where
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


VAGUE = {"telling", "told", "doing", "knowing", "keeping", "going_on", "beside", "parting"}
"""Words that do not say what is in a file."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_called_by_what_is_in_them(folder):
    assert [path for path in modules(folder) if path.stem in VAGUE] == []
