"""What the help of the commands names is found wherever blockproof is installed."""

import shlex
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import app
from blockproof.fuzz.planning.shipped import DEVIATIONS, EXAMPLES, FINDINGS, shipped, shipped_model

ROOT = Path(__file__).parents[3]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("folder", [EXAMPLES, FINDINGS, *DEVIATIONS], ids=str)
def test_every_file_of_the_folder_is_in_the_package(elsewhere, folder):
    names = [path.name for path in (ROOT / folder).iterdir() if path.is_file() and path.suffix != ".py"]
    assert len(names) > 3
    for name in names:
        found = shipped(folder / name)
        assert found.is_absolute()
        assert found.read_bytes() == (ROOT / folder / name).read_bytes()
    assert shipped(folder).is_dir()


def test_a_file_of_that_path_in_the_current_folder_comes_first(elsewhere):
    mine = Path("examples/gemma-3-27b.json")
    mine.parent.mkdir()
    mine.write_text("{}")
    assert shipped(mine) == mine
    assert shipped_model(mine) == mine


def test_an_example_is_found_by_its_bare_name(elsewhere):
    assert shipped_model(Path("gemma-3-27b")) == shipped(Path("examples/gemma-3-27b.json"))
    Path("gemma-3-27b").mkdir()
    assert shipped_model(Path("gemma-3-27b")) == Path("gemma-3-27b")


@pytest.mark.parametrize(
    "name",
    ["nope", "examples/nope.json", "other/gemma-3-27b.json", "../examples/gemma-3-27b.json", "docs", "model.json"],
)
def test_what_is_nowhere_comes_back_as_it_is(elsewhere, name):
    assert shipped(Path(name)) == Path(name)
    assert shipped_model(Path(name)) == Path(name)


def test_the_paths_in_the_help_are_shipped(elsewhere):
    """All but those that a run leaves behind (`findings/...`, `trace.json`)."""
    words = [word for command in app.registered_commands for word in shlex.split(command.epilog or "")]
    paths = [Path(word) for word in words if word.startswith(("docs/", "examples/"))]
    assert len(paths) >= 3
    assert [str(path) for path in paths if not shipped(path).is_absolute()] == []
