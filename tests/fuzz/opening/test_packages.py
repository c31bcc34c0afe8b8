"""Packages beside a release: a wheel where there is one, else the Python files of the sources; one line for neither."""

import io
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.cli.patches import patched_name
from blockproof.fuzz.opening import targets
from blockproof.fuzz.opening.environments import InstallError
from blockproof.fuzz.opening.packages import plugins_in, with_packages
from blockproof.fuzz.opening.patches import Patch

VLLM = families()["vllm"]


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the package index."""
    monkeypatch.setenv("BLOCKPROOF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def wheel(folder: Path, name: str, module: str) -> None:
    with ZipFile(folder / f"{name}-1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{module}/__init__.py", "VALUE = 1\n")
        info = f"{name}-1.2.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def sources(folder: Path, name: str, files: dict[str, str]) -> None:
    with tarfile.open(folder / f"{name}-2.0.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            told = tarfile.TarInfo(f"{name}-2.0/{path}")
            told.size = len(text)
            archive.addfile(told, io.BytesIO(text.encode()))


def test_a_wheel_is_unpacked_once_and_named_in_full(index: Path) -> None:
    wheel(index, "plugin", "plugin")
    patch, (folder,) = with_packages(Patch(packages=("plugin",)), VLLM, None)
    assert patch.packages == ("plugin==1.2",)
    assert (folder / "plugin" / "__init__.py").read_text() == "VALUE = 1\n"
    (index / "plugin-1.2-py3-none-any.whl").unlink()
    assert with_packages(patch, VLLM, None) == (patch, [folder])


def test_what_cannot_be_built_is_taken_as_its_sources(index: Path) -> None:
    told = "Metadata-Version: 2.1\nName: device-plugin\nVersion: 2.0\n"
    files = {
        "PKG-INFO": told,
        "setup.py": "raise SystemExit('no device')\n",
        "device_plugin/__init__.py": "",
        "a.txt": "",
    }
    sources(index, "device-plugin", files)
    patch, (folder,) = with_packages(Patch(packages=("device-plugin==2.0",)), VLLM, None)
    assert patch.packages == ("device-plugin==2.0",)
    assert sorted(path.name for path in folder.iterdir()) == ["device_plugin", "device_plugin-2.0.dist-info"]
    assert "Version: 2.0" in (folder / "device_plugin-2.0.dist-info" / "METADATA").read_text()


def test_what_is_not_there_or_is_the_engine_itself_is_said_in_a_line(index: Path) -> None:
    with pytest.raises(InstallError, match="nothing-like-it cannot be fetched: No matching distribution found"):
        with_packages(Patch(packages=("nothing-like-it",)), VLLM, None)
    wheel(index, "fork", "vllm")
    with pytest.raises(InstallError, match="has a module vllm of its own, in place of the release's"):
        with_packages(Patch(packages=("fork",)), VLLM, None)
    assert not list((index / "home" / "blockproof" / "targets" / "packages").glob(".partial*"))


@pytest.mark.parametrize(
    ("group", "found"),
    [
        ("vllm.general_plugins", ["mine:register"]),
        ("vllm.platform_plugins", ["mine:register"]),
        ("console_scripts", []),
    ],
)
def test_plugins_that_nobody_applies_are_named(
    group: str, found: list[str], index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = index / "beside" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nmine = mine:register\n")
    assert plugins_in([index / "beside"], VLLM) == found
    monkeypatch.setattr(targets, "interpreter_of", lambda spec: (spec, None))
    for patch, said in ((Patch(paths=(str(index / "beside"),)), bool(found)), (Patch(("mine:register",)), False)):
        name = patched_name("vllm==0.23.0", patch)
        assert name.startswith("vllm==0.23.0+")
        assert ("name its plugin, as in --patch mine:register" in capsys.readouterr().err) is said
