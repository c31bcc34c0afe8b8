"""A script and what it shares, as one file."""

import ast
import subprocess
import sys

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.releases.finding_scripts import engine_of, standalone
from blockproof.fuzz.releases.findings import SCRIPT, read_entries

from .test_finding_scripts import FOLDER, SCRIPTS

SHARED = '''"""What all
scripts share."""

import sys
from base import told


def main():
    print(told(sys.argv[1:]))
'''
BASE = '''"""At the bottom."""

from typing import Any

SIGN = "+"


def told(what: Any) -> str:
    return f"{SIGN}{what}"
'''
MINE = '''"""What it shows."""

from typing import Any

from shared import main
from fix import (
    fix,
)


def case() -> Any:
    fix()
    main()


case()
'''
FIX = '''"""The change."""


def fix() -> None:
    print("fixed")
'''


@pytest.fixture
def script(tmp_path):
    """A script in a folder of its own, and what it shares one folder up."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "shared.py").write_text(SHARED)
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "mine" / "fix.py").write_text(FIX)
    path = tmp_path / "mine" / SCRIPT
    path.write_text(MINE)
    return path


def printed(text, folder, *words):
    """What a file prints that lies in an empty folder, run by an interpreter without packages."""
    folder.mkdir()
    (folder / "reproduce.py").write_text(text)
    command = [sys.executable, "-I", "-S", "reproduce.py", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def test_one_file_runs_in_an_empty_folder(script, tmp_path):
    text = standalone(script)
    assert printed(text, tmp_path / "empty", "a", "b") == "fixed\n+['a', 'b']\n"
    assert text.startswith('"""What it shows."""\n')
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert comments == ["# At the bottom.", "# What all scripts share.", "# The change.", "# The case."]
    assert text.count("from typing import Any") == 1


def test_a_script_without_neighbours_stays_as_it_is(script):
    script.write_text('"""Alone."""\n\nimport sys\n\nprint(sys.argv)\n')
    assert standalone(script) == script.read_text()


def test_what_two_files_import_from_one_place_is_no_conflict(script, tmp_path):
    script.write_text(
        f"{MINE.replace('from shared', 'import sys' + chr(10) + 'from shared')}\nprint(sys.version_info[0])\n"
    )
    assert printed(standalone(script), tmp_path / "empty").endswith("3\n")


@pytest.mark.parametrize(
    ("replaced", "by", "why"),
    [
        ("from shared import main", "import shared", "only `from MODULE import NAME`"),
        ("from shared import main", "from shared import main as start", "only `from MODULE import NAME`"),
        ("from shared import main", "from shared import *", "only `from MODULE import NAME`"),
        ("    fix()", "    from shared import main\n    fix()", "only `from MODULE import NAME`"),
        ("from shared import main", "from shared import main, other", "other is nothing in one file"),
        ("from shared import main", "from shared import main, told", "told is base.told in one file"),
        ("def case()", "def told():\n    pass\n\n\ndef case()", "told is base.told in one file, not scenario.told"),
        ("def case()", "SIGN = 3\n\n\ndef case()", "SIGN is base.SIGN in one file, not scenario.SIGN"),
        ("def case()", "for SIGN in 'ab':\n    pass\n\n\ndef case()", "SIGN is base.SIGN in one file"),
        ("from typing import Any", "from os import path as Any", "Any is typing.Any in one file, not os.path"),
    ],
)
def test_what_one_file_would_mean_otherwise_is_told(script, replaced, by, why):
    assert replaced in MINE
    script.write_text(MINE.replace(replaced, by))
    with pytest.raises(ValueError, match=why.replace("*", r"\*").replace("(", r"\(")):
        standalone(script)


# The scripts of findings.


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_command_prints_what_is_run(name, capsys):
    assert main(["findings", str(FOLDER), "--script", name]) == 0
    text = capsys.readouterr().out
    assert text == standalone(SCRIPTS[name])
    assert "blockproof" not in text
    assert ast.get_docstring(ast.parse(text)) == ast.get_docstring(ast.parse(SCRIPTS[name].read_text()))


def test_every_definition_and_statement_of_its_files_is_in_the_one_file():
    for name, script in SCRIPTS.items():
        whole = [ast.dump(node) for node in ast.parse(standalone(script)).body]
        engine = engine_of(script).name.replace("vllm", "engine")
        for path in (script, FOLDER / f"{engine}_without_device.py", FOLDER / "verdict.py"):
            _, *body = ast.parse(path.read_text()).body  # the first is the docstring
            kept = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
            assert kept
            assert [node for node in kept if ast.dump(node) not in whole] == [], (name, path.name)


def test_what_two_scripts_have_in_common_stands_once():
    found = {}
    for path in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and len(list(ast.walk(node))) > 40:
                found.setdefault(ast.dump(node), []).append(f"{path.parent.name}/{path.name}: {node.name}")
    assert [places for places in found.values() if len(places) > 1] == []


def test_scripts_of_findings_are_short():
    """They were 5,891 lines, of which two thirds stood in most of them."""
    lines = {path: len(path.read_text().splitlines()) for path in FOLDER.rglob("*.py")}
    assert sum(lines.values()) <= 95 * len(SCRIPTS)


@pytest.mark.parametrize("name", [name for name in SCRIPTS if engine_of(SCRIPTS[name]) is families()["vllm"]])
def test_the_environment_is_set_before_the_engine_is_imported(name):
    text = standalone(SCRIPTS[name])
    first = min(text.index(f"\n{word} vllm") for word in ("import", "from"))
    assert 0 < text.index('"VLLM_LOGGING_LEVEL"') < first


def test_a_script_that_is_not_there_is_told(tmp_path, capsys):
    assert main(["findings", str(FOLDER), "--script", "nobody"]) == 2
    text = '[mine]\ntitle="t"\nclass="leak"\nrule="S1"\nreachable="yes"\nsees="x"\nfix="y"\n'
    (tmp_path / "findings.toml").write_text(text)
    assert list(read_entries(tmp_path)) == ["mine"]
    assert main(["findings", str(tmp_path), "--script", "mine"]) == 2
    assert "mine has no script" in capsys.readouterr().err
