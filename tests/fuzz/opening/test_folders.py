"""A user's code is found again from another folder, however it was named."""

import sys

import pytest
from blockproof.fuzz.opening.names import folder_of, seen_from
from blockproof.fuzz.opening.targets import open_target

TARGET = """
class Target:
    name = "mine"
    def start(self, shape): ...
    def step(self, operation): ...
    def close(self): ...

def make():
    return Target()
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a module and a package, which is the current one."""
    folder = tmp_path / "project"
    (folder / "folders_package").mkdir(parents=True)
    (folder / "folders_package" / "__init__.py").touch()
    for name in ("folders_module.py", "folders_package/inner.py"):
        (folder / name).write_text(TARGET)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    yield folder
    for name in [name for name in sys.modules if name.startswith("folders_")]:
        del sys.modules[name]


def test_what_the_current_folder_has_to_do_with_a_name(project):
    for spec in ("folders_module:make", "folders_package.inner:make", "folders_module.py:make", "program:./core"):
        assert folder_of(spec) == project, spec
    for spec in (
        *("impl", "fault:noop", "fault:one-block-leaks", "vllm==0.23.0", "pytest:main", "json:loads", "program:core"),
        *(
            f"{project}/folders_module.py:make",
            f"program:{project}/core",
            "blockproof.fuzz.adapters.nano_vllm:make_target",
        ),
    ):
        assert folder_of(spec) is None, spec


def test_a_module_that_is_found_elsewhere_counts_from_there(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folder_of("folders_package.inner:make") == project


@pytest.mark.parametrize("spec", ["folders_module:make", "folders_package.inner:make", "folders_module.py:make"])
def test_it_is_opened_from_another_folder(spec, project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(project)])
    assert open_target(seen_from(spec, project)).name == "mine"


def test_a_program_is_named_by_its_whole_path(project):
    (project / "core").touch()
    assert seen_from("program:./core --fast", project) == f"program:{project}/core --fast"
    assert seen_from("program:core", project) == "program:core"
    assert seen_from("impl", project) == "impl"
