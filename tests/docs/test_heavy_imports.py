"""The guide's recipe for an engine whose package cannot be imported, to the letter: alone, and under `--git`."""

import re
import textwrap
from pathlib import Path

import pytest
from blockproof.fuzz.cli import main as cli

from ..fuzz.releases.toy_git import git

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "your-engine.md"
MANAGER = "class BlockManager:\n    core = {name!r}\n"
FACTORY = """

from blockproof.fuzz.opening.targets import open_here


def make_target():
    return open_here(BlockManager.core)
"""


def recipe() -> str:
    """The code below the words about a package that imports torch."""
    section = GUIDE.read_text(encoding="utf-8").partition("## Engines that are hard to import")[2]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None
    return textwrap.dedent(code[1])


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A repository of an engine with a commit for each core, whose package cannot be imported; and its target, in a
    folder beside the repository or in it."""
    repo, package = tmp_path / "nano-vllm", tmp_path / "nano-vllm" / "nanovllm"
    (package / "engine").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no torch here')\n")
    (package / "engine" / "__init__.py").write_text("")
    target = tmp_path / "checks" / "nano_target.py"
    target.parent.mkdir()
    target.write_text(recipe() + FACTORY)
    git(repo, "init", "--quiet", "--initial-branch=trunk")
    for name in ("impl", "fault:free-order-reversed"):
        (package / "engine" / "block_manager.py").write_text(MANAGER.format(name=name))
        git(repo, "add", ".")
        git(repo, "commit", "--quiet", "-m", f"take {name}")
    monkeypatch.chdir(tmp_path)
    return repo


WORDS = ("--seed", "1", "--operations", "100", "--attention", "full", "--out", "out")


def test_alone_it_finds_the_engine_beside_it(engine, capsys):
    words = ["fuzz", "--target", "checks/nano_target.py:make_target", "--oracle", "shadow", "--isolate", *WORDS]
    assert cli.main(words) == 0, capsys.readouterr().err


@pytest.mark.parametrize("inside", [False, True])
def test_with_two_commits_each_side_is_its_commit(engine, capsys, inside):
    target = Path("checks", "nano_target.py")
    if inside:
        target = Path(target.rename(engine / "nano_target.py"))
    words = ["verify", "--git", "HEAD~1..HEAD", "--repo", str(engine), "--target", f"{target}:make_target"]
    adapter = ["--adapter", str(target)] if inside else []
    assert cli.main([*words, *adapter, *WORDS]) == 1
    assert "other entries of the cache go first" in capsys.readouterr().out
