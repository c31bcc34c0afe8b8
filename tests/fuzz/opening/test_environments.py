import fcntl
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.cli import targets as commands
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening import targets as registry
from blockproof.fuzz.opening.child import ChildTarget, PythonPlace
from blockproof.fuzz.opening.environments import InstallError
from blockproof.fuzz.opening.new_target import exercise
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.targets.family import Family
from blockproof.model.ops import Refused
from typer.testing import CliRunner

SPEC = "vllm==0.23.0"
VLLM = families()["vllm"]
RUN = environments._run


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and installation steps that only note what they would run."""
    monkeypatch.setenv("BLOCKPROOF_HOME", str(tmp_path))
    return tmp_path / "blockproof" / "targets"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    return fake_steps(monkeypatch, lambda command: None)


def fake_steps(monkeypatch: pytest.MonkeyPatch, then: Callable[[list[str]], object]) -> list[list[str]]:
    ran: list[list[str]] = []

    def run(command: list[str], step: str) -> None:
        ran.append(command)
        if command[3] == "venv":
            bin_folder = Path(command[4]) / "bin"
            bin_folder.mkdir(parents=True)
            (bin_folder / "python").symlink_to(sys.executable)
        if command[4] == "download":
            name, _, version = command[-1].partition("==")
            with ZipFile(
                Path(command[command.index("--dest") + 1]) / f"{name}-{version}-py3-none-any.whl", "w"
            ) as wheel:
                for path in (f"{name}/__init__.py", f"{name}/kernels.so", f"{name}-{version}.dist-info/METADATA"):
                    wheel.writestr(path, "")
        then(command)

    monkeypatch.setattr(environments, "_run", run)
    return ran


def works(family: Family, place: PythonPlace) -> str:
    assert family == VLLM
    assert place.python.exists()
    (layer,) = place.layers
    assert (layer / "vllm" / "__init__.py").exists()
    return "0.23.0"


def silent(step: str) -> None:
    pass


def names_in(place: Path) -> set[str]:
    """What is there in the end: deleting goes on in the background."""
    end = time.monotonic() + 20
    while any(place.glob(".trash-*")) and time.monotonic() < end:
        time.sleep(0.01)
    return {entry.name for entry in place.iterdir()} - {".lock"}


def test_install_makes_an_environment_that_is_found(place: Path, steps: list[list[str]]) -> None:
    said: list[str] = []
    environment = environments.install(SPEC, said.append, works)
    assert environment == environments.find(SPEC) == environments.installed()[0]
    layer = place / "vllm-0.23.0"
    assert environment.place == PythonPlace(place / "base-vllm" / "bin" / "python", (layer,))
    assert environment.versions["vllm"] == "0.23.0"
    assert [command[-1] for command in steps[1:]] == [VLLM.torch, steps[2][-1], SPEC]
    assert "--no-deps" in steps[2]
    assert "--no-deps" in steps[3]
    assert len(said) == 6
    assert names_in(place) == {"base-vllm", "vllm-0.23.0"}


def test_of_a_release_only_python_files_are_kept(place: Path, steps: list[list[str]]) -> None:
    environments.install(SPEC, silent, works)
    layer = place / "vllm-0.23.0"
    kept = {str(path.relative_to(layer)) for path in layer.rglob("*") if path.is_file()}
    assert kept == {"vllm/__init__.py", "vllm-0.23.0.dist-info/METADATA", "blockproof-target.json"}


def test_releases_share_their_base(place: Path, steps: list[list[str]]) -> None:
    first = environments.install(SPEC, silent, works)
    steps.clear()
    second = environments.install("vllm==0.33.0", silent, works)
    assert [command[3:5] for command in steps] == [["pip", "download"]]
    assert first.place.python == second.place.python
    assert [found.name for found in environments.installed(VLLM)] == [SPEC, "vllm==0.33.0"]
    assert environments.remove(SPEC)
    assert names_in(place) == {"base-vllm", "vllm-0.33.0"}
    assert environments.remove("vllm==0.33.0")
    assert names_in(place) == set()


def test_base_is_made_anew_when_the_requirements_have_changed(place: Path, steps: list[list[str]]) -> None:
    environments.install(SPEC, silent, works)
    marker = place / "base-vllm" / "blockproof-base.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"digest": "of other requirements"}))
    steps.clear()
    environments.install(SPEC, silent, works)
    assert steps[0][3] == "venv"
    assert len(steps) == 4


def test_full_environment_of_an_earlier_version_is_replaced(place: Path, steps: list[list[str]]) -> None:
    old = place / "vllm-0.23.0"
    (old / "bin").mkdir(parents=True)
    (old / "blockproof-target.json").write_text('{"target": "vllm==0.23.0", "versions": {"vllm": "0.23.0"}}')
    assert environments.installed() == []
    environments.install(SPEC, silent, works)
    assert environments.find(SPEC) is not None
    assert not (old / "bin").exists()


def test_releases_are_listed_as_numbers_order_them(steps: list[list[str]]) -> None:
    for version in ("0.10.0", "0.9.2", "0.10.1"):
        environments.install(f"vllm=={version}", silent, works)
    found = [environment.name for environment in environments.installed()]
    assert found == ["vllm==0.9.2", "vllm==0.10.0", "vllm==0.10.1"]


def test_second_install_does_nothing(steps: list[list[str]]) -> None:
    first = environments.install(SPEC, silent, works)
    steps.clear()
    assert environments.install(SPEC, silent, works) == first
    assert steps == []


@pytest.mark.parametrize("error", [InstallError("no"), KeyboardInterrupt(), OSError("disk full")])
def test_early_end_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail_at_torch(command: list[str]) -> None:
        if command[-1] == VLLM.torch:
            raise error

    fake_steps(monkeypatch, fail_at_torch)
    with pytest.raises(InstallError if isinstance(error, OSError) else type(error)):
        environments.install(SPEC, silent, works)
    assert names_in(place) == set()


def test_environment_that_does_not_run_is_not_kept(place: Path, steps: list[list[str]]) -> None:
    def broken(family: Family, where: PythonPlace) -> str:
        raise TargetUnavailableError("cannot import torch")

    with pytest.raises(TargetUnavailableError, match="cannot import torch"):
        environments.install(SPEC, silent, broken)
    assert names_in(place) == {"base-vllm"}  # there is nothing wrong with it


def test_leftovers_of_a_killed_install_are_no_environment_and_are_replaced(place: Path, steps: list[list[str]]) -> None:
    leftover = place / ".partial-vllm-0.23.0" / "lib"
    leftover.mkdir(parents=True)
    (place / ".trash-of-a-killed-removal").mkdir()
    assert environments.installed() == []
    environments.install(SPEC, silent, works)
    assert names_in(place) == {"base-vllm", "vllm-0.23.0"}
    assert not (place / "vllm-0.23.0" / "lib").exists()


def test_folder_without_a_readable_marker_is_no_environment(place: Path) -> None:
    (place / "vllm-0.23.0").mkdir(parents=True)
    assert environments.find(SPEC) is None
    for text in ("", "[]", "{}", '{"layer": "x"}'):
        (place / "vllm-0.23.0" / "blockproof-target.json").write_text(text)
        assert environments.find(SPEC) is None


def test_two_installations_at_once_are_refused(place: Path, steps: list[list[str]]) -> None:
    place.mkdir(parents=True)
    with open(place / ".lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InstallError, match="another installation is going on"):
            environments.install(SPEC, silent, works)
    environments.install(SPEC, silent, works)


def test_remove_deletes_it(place: Path, steps: list[list[str]]) -> None:
    environments.install(SPEC, silent, works)
    assert environments.remove(SPEC)
    assert names_in(place) == set()
    assert not environments.remove(SPEC)


@pytest.mark.parametrize("spec", ["vllm", "vllm>=0.23.0", "vllm==", "vllm==0.23.0; x", "torch==2.0", "vllm==../x", ""])
def test_only_exact_releases_can_be_installed(spec: str) -> None:
    with pytest.raises(ValueError, match=r"names no release; write .*vllm==VERSION"):
        environments.install(spec, silent, works)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Looking\nERROR: No such release\nhint", "a step failed: No such release"),
        ("Retrying after connection broken by X\nERROR: No", "a step failed: No; the package index cannot be reached"),
        ("no line names an error", "a step failed: no line names an error"),
        ("", "a step failed: it said nothing"),
    ],
)
def test_failed_step_becomes_the_line_that_names_the_error(output: str, said: str) -> None:
    with pytest.raises(InstallError) as caught:
        RUN([sys.executable, "-c", f"import sys; print({output!r}, file=sys.stderr); sys.exit(1)"], "a step")
    assert str(caught.value) == said


def test_home_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BLOCKPROOF_HOME", str(tmp_path / "file"))
    with pytest.raises(InstallError, match="set BLOCKPROOF_HOME to another place"):
        environments.install(SPEC, silent, works)


def test_home_follows_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLOCKPROOF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert environments.home() == Path("/somewhere/blockproof/targets")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert environments.home() == Path.home() / ".cache/blockproof/targets"


def test_shipped_requirements_are_all_pinned() -> None:
    pins = [line for line in VLLM.requirements.splitlines() if not line.startswith("#")]
    assert len(pins) > 40
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)


# What a user calls a target.


def test_uninstalled_release_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetUnavailableError, match=re.escape("blockproof targets install vllm==9.9.9")):
        registry.open_target("vllm==9.9.9")
    monkeypatch.setattr(Family, "here", None)
    with pytest.raises(TargetUnavailableError, match=re.escape("blockproof targets install vllm==0.23.0")):
        registry.open_target("vllm")


def test_vllm_is_the_one_installed_release(monkeypatch: pytest.MonkeyPatch, steps: list[list[str]]) -> None:
    monkeypatch.setattr(Family, "here", None)
    environments.install(SPEC, silent, works)
    for spec in ("vllm", SPEC):
        target = registry.open_target(spec)
        assert isinstance(target, ChildTarget)
        assert target.name == SPEC
    environments.install("vllm==0.33.0", silent, works)
    with pytest.raises(TargetUnavailableError, match=re.escape("name one of vllm==0.23.0, vllm==0.33.0")):
        registry.open_target("vllm")


@pytest.mark.parametrize(
    "spec", ["", "nonsense", "vllm=0.23.0", "vllm==x", "module:", "a b:c", "impl==1", "fault:none"]
)
def test_spec_of_no_form_is_a_value_error_of_one_line(spec: str) -> None:
    with pytest.raises(ValueError, match=r"write |did you mean |see blockproof ") as caught:
        registry.open_target(spec)
    assert "\n" not in str(caught.value)


def test_isolate_puts_our_core_into_a_child() -> None:
    assert exercise(registry.open_target("impl"))
    target = registry.open_target("impl", isolate=True)
    assert isinstance(target, ChildTarget)
    assert exercise(target)


def test_factory_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    assert registry.open_target("fakes:own_pid").name == "fake"
    with pytest.raises(TargetUnavailableError, match="the factory failed: TypeError: no such device"):
        registry.open_target("fakes:cannot_be_made")


# The commands.


def call(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(commands.app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_commands_from_install_to_remove(monkeypatch: pytest.MonkeyPatch, steps: list[list[str]]) -> None:
    monkeypatch.setattr(commands, "version_run_by", works)
    assert call("list")[1].startswith("no releases are installed")
    assert call("list", "--json")[1] == "[]\n"
    code, out, err = call("install", SPEC, "--json")
    assert (code, json.loads(out)["target"]) == (0, SPEC)
    assert "creating the environment" in err
    assert json.loads(call("list", "--json")[1])[0]["versions"]["vllm"] == "0.23.0"
    assert json.loads(call("remove", SPEC, "--json")[1]) == {"target": SPEC, "removed": True}
    assert call("remove", SPEC)[1] == f"{SPEC} was not installed\n"


def test_several_releases_and_all_known_ones(monkeypatch: pytest.MonkeyPatch, steps: list[list[str]]) -> None:
    monkeypatch.setattr(commands, "version_run_by", works)
    code, out, _ = call("install", SPEC, "vllm==0.33.0", SPEC, "--json")
    assert code == 0
    assert [json.loads(line)["target"] for line in out.splitlines()] == [SPEC, "vllm==0.33.0"]
    code, out, _ = call("install", "--all", "vllm", "--json")
    assert code == 0
    assert [json.loads(line)["target"] for line in out.splitlines()] == [*map(VLLM.spec, VLLM.releases)]
    assert call("remove", SPEC, "vllm==0.19.1")[0] == 0
    assert len(environments.installed()) == len(VLLM.releases) - 2


def test_release_that_cannot_be_installed_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_once(command: list[str]) -> None:
        if command[-1] == SPEC:
            raise InstallError("no such release")

    fake_steps(monkeypatch, fail_once)
    monkeypatch.setattr(commands, "version_run_by", works)
    code, out, err = call("install", SPEC, "vllm==0.33.0", "--json")
    assert (code, json.loads(out)["target"]) == (3, "vllm==0.33.0")
    assert "blockproof: no such release" in err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("install", "vllm"), 2, "write vllm==VERSION"),
        (("install",), 2, "no release is named"),
        (("install", SPEC, "torch==1.0"), 2, "write one of"),
        (("remove", "torch==1.0"), 2, "vllm==VERSION"),
        (("check", "nonsense"), 2, "unknown target 'nonsense'"),
        (("check", "vllm==9.9.9"), 3, "blockproof targets install vllm==9.9.9"),
        (("check", "no_such_module:x"), 3, "No module named 'no_such_module'"),
    ],
)
def test_errors_of_commands_are_one_line_and_a_code(arguments: tuple[str, ...], code: int, says: str) -> None:
    got, out, err = call(*arguments)
    assert (got, out) == (code, "")
    assert err.startswith("blockproof: ")
    assert says in err
    assert err.count("\n") == 1


def test_interrupted_install_says_so_and_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(command: list[str]) -> None:
        raise KeyboardInterrupt

    fake_steps(monkeypatch, interrupt)
    code, _, err = call("install", SPEC)
    assert code == 130
    assert err.endswith("blockproof: interrupted\n")
    assert names_in(place) == set()


def test_check_drives_any_target() -> None:
    code, out, _ = call("check", "impl", "--json")
    assert code == 0
    assert json.loads(out)["target"] == "impl"


def test_exercise_reports_a_target_that_fails_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    target = registry.open_target("fakes:own_pid")
    monkeypatch.setattr(target, "start", lambda shape: (Refused(), None))
    with pytest.raises(TargetUnavailableError, match="in a first try start is refused"):
        exercise(target)


@pytest.mark.parametrize("command", ["list", "install", "check", "remove"])
def test_help_has_an_example(command: str) -> None:
    code, out, _ = call(command, "-h")
    assert code == 0
    assert f"blockproof targets {command}" in out
