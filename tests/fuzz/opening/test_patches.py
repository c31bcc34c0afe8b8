"""A release with a patch over it: its name, what a child applies, and what is said if it cannot be applied."""

import subprocess
import sys
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import PythonPlace, environment_of
from blockproof.fuzz.opening.known_deviations import declared_for
from blockproof.fuzz.opening.names import ReleaseName, folder_of, parsed, runs_code, seen_from
from blockproof.fuzz.opening.oracles import suited_to
from blockproof.fuzz.opening.patches import Patch, patch_of
from blockproof.fuzz.opening.targets import interpreter_of, open_target
from blockproof.fuzz.targets.base import block_sizes_of
from blockproof.fuzz.testing.ci import CiJob
from blockproof.fuzz.traces.trace_file import read_trace

RELEASE = "vllm==0.23.0"
needs_release = pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")
ONE_MORE = """
import vllm.v1.core.single_type_kv_cache_manager as managers

MANAGER = managers.SingleTypeKVCacheManager
real = MANAGER.get_num_blocks_to_allocate


def patch():
    def one_more(self, *args, **kwargs):
        needed = real(self, *args, **kwargs)
        return needed + 1 if needed else needed

    MANAGER.get_num_blocks_to_allocate = one_more
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A patch, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "one_more.py"
    path.write_text(ONE_MORE)
    return path


def test_a_name_says_the_whole_patch_and_is_read_back(file: Path) -> None:
    (file.parent / "a+b").mkdir()
    patch = Patch(("one_more.py", "plugin.kv:register"), ("plugin==1.2",), ("a+b",), ("torch_npu", "torch.npu"))
    spec = patch.over(RELEASE)
    assert spec.startswith(f"{RELEASE}+path=a%2Bb+with=plugin==1.2+without=torch_npu+without=torch.npu+one_more.py+")
    named = parsed(spec)
    assert isinstance(named, ReleaseName)
    assert (named.release, named.version) == (RELEASE, "0.23.0")
    assert named.patch is not None
    assert named.patch.recorded == spec[-8:]
    assert named.patch.text == patch.text
    assert named.patch.label == "plugin"
    assert runs_code(spec)
    assert not runs_code(RELEASE)


def test_the_digest_is_that_of_the_files(file: Path) -> None:
    folder = file.parent / "sources"
    folder.mkdir()
    patch = Patch(("one_more.py",), paths=("sources",))
    before = patch.digest()
    (folder / "notes.txt").write_text("no Python")
    assert patch.digest() == before
    (folder / "a.py").write_text("")
    after = patch.digest()
    assert after != before
    file.write_text(ONE_MORE + "#")
    assert patch.digest() not in (before, after)


def test_a_name_with_paths_that_count_from_a_folder_is_found_from_elsewhere(file: Path) -> None:
    spec = Patch(("one_more.py",)).over(RELEASE)
    assert folder_of(spec) == file.parent
    there = seen_from(spec, file.parent)
    assert there == Patch((str(file),)).over(RELEASE).replace(spec[-8:], spec[-8:])
    assert folder_of(there) is None


def test_a_patched_reference_release_has_its_deviations_and_its_oracles(file: Path) -> None:
    spec = Patch(("one_more.py",)).over(RELEASE)
    assert declared_for(spec) == declared_for(RELEASE) != ()
    assert suited_to(spec) == suited_to(RELEASE)


@pytest.mark.parametrize("text", ["", "=x", "under=x", "path=", "a.py++b.py"])
def test_a_malformed_patch_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no patch"):
        assert patch_of(f"{RELEASE}+{text}+") is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--patch", "none.py"), "--patch: there is no file none.py"),
        (("--patch", "no module"), "--patch: 'no module' is no file.py, and no package.module"),
        (("--path", "nowhere"), "--path: there is no folder nowhere"),
        (("--with", "a b"), "--with: 'a b' is no package"),
        (("--without", "a:b"), "--without: 'a:b' is no module's name"),
        (("--refuse", "Pool.take"), "--refuse: 'Pool.take' is no call; write MODULE:CLASS.METHOD"),
        (("--refuse", "a:b c", "--patch", "one_more.py"), "--refuse: 'a:b c' is no call"),
        (("--patch", "one_more.py", "--target", "impl"), "change a release, and impl is none"),
    ],
)
def test_wrong_options_are_said_in_a_line(
    options: tuple[str, ...], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fuzz", "--operations", "10", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


TAKING: tuple[str, ...] = ("fuzz", "fuzz-config", "simulate", "verify", "diff", "replay", "shrink")
TAKING += ("bisect", "bench", "prove", "ci", "compat test", "compat schedule")


@pytest.mark.parametrize("command", TAKING)
def test_every_command_that_the_guide_names_takes_a_patch(
    command: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*command.split(), "-h"]) == 0
    told = capsys.readouterr().out
    for option in ("--patch", "--with", "--path", "--without", "--refuse"):
        assert option in told
    guide = Path(__file__).parents[3] / "docs" / "guide" / "patches.md"
    assert f"`{command.split()[0]}`" in guide.read_text()


ENGINE = {"engine/__init__.py": "VALUE = 1\n", "engine/core.py": "import engine\nVALUE = 1\n"}


def imported(tmp_path: Path, program: str, patch: Patch) -> str:
    """What a program prints in a child with this patch over a small engine; the last line of its errors if it fails."""
    engine = tmp_path / "site"
    for name, text in ENGINE.items():
        (engine / name).parent.mkdir(parents=True, exist_ok=True)
        (engine / name).write_text(text)
    modules = tmp_path / "modules"
    modules.mkdir()
    place = PythonPlace(Path(sys.executable), (engine,), patch.place("engine", ()))
    environment = environment_of(place, modules)
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    return (ran.stdout if not ran.returncode else ran.stderr).strip().splitlines()[-1]


PRINTS = "import engine.core; print(engine.VALUE, engine.core.VALUE, engine.core.engine is engine)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import engine, engine.core\nengine.VALUE = 2\nengine.core.VALUE = 3", "2 3 True"),
        ("def patch():\n    import engine.core\n    engine.core.VALUE = 3", "1 3 True"),
        ("patch = None", "1 1 True"),
    ],
)
def test_a_patch_is_applied_before_the_engine_is_imported(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "change.py").write_text(text)
    assert imported(tmp_path, PRINTS, Patch((str(tmp_path / "change.py"),))) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import engine\n1 / 0", "ZeroDivisionError: division by zero (FILE, line 2)"),
        ("import no_device", "No module named 'no_device' (FILE, line 1); put no_device beside it with --with or"),
        ("import engine.core\nfrom engine import built", "add --without engine.built"),
        ("import os\nos.npu", "add --without os.npu"),
        ("import engine.built", "add --without engine.built; else it is the name in another release"),
        ("import engine\nraise SystemExit(4)", "SystemExit: 4 (FILE, line 2)"),
        ("def", "SyntaxError: invalid syntax"),
    ],
)
def test_a_patch_that_cannot_be_applied_is_said_in_a_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "change.py"
    path.write_text(text)
    line = imported(tmp_path, PRINTS, Patch((str(path),)))
    assert f"PatchError: the patch {path} cannot be applied: " in line
    assert said.replace("FILE", str(path)) in line


def test_what_is_stood_in_for_has_everything_and_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "change.py"
    path.write_text(
        "import device.parts\nimport os\nfrom device import Base, wrap\n"
        "class Mine(Base):\n    size = 3\n"
        "@wrap\ndef f():\n    return 4\n"
        "def patch():\n    import engine\n"
        "    with device.lock() as held:\n        engine.VALUE = (Mine().size, f(), bool(held), list(os.npu.all()))\n"
    )
    patch = Patch((str(path),), without=("device", "os.npu"))
    assert imported(tmp_path, "import engine; print(engine.VALUE)", patch) == "(3, 4, False, [])"


def test_calls_that_may_be_refused_are_those_of_the_sources_and_of_the_option(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(f'REFUSES = ("{name.title()}.take",)\n')
    sources = (str(tmp_path / "first.py"), str(tmp_path / "second.py"))
    patch = Patch(sources, refuses=("Other.take=MemoryError", "engine.core:grow"))
    assert patch_of(f"engine==1+{patch.text}") == patch
    told = imported(tmp_path, "import engine, sitecustomize as s; print(*sorted(s.CALLS))", patch)
    own = "blockproof_patch_"
    assert told.split() == [
        f"{own}first:First.take",
        f"{own}second:Other.take=MemoryError",
        f"{own}second:Second.take",
        "engine.core:grow",
    ]


MIDWAY = """
import vllm.v1.core.block_pool as pools
import vllm.v1.core.kv_cache_manager as managers

REFUSES = ("page",)


class NoPageError(Exception):
    pass


def page(count):
    return True


def patch():
    take, allocate = pools.BlockPool.get_new_blocks, managers.KVCacheManager.allocate_slots

    def taken(self, count):
        if not page(count):
            raise NoPageError
        return take(self, count)

    def allocated(self, *args, **named):
        try:
            return allocate(self, *args, **named)
        except NoPageError:
            return None

    pools.BlockPool.get_new_blocks, managers.KVCacheManager.allocate_slots = taken, allocated
"""


@needs_release
@pytest.mark.slow
def test_what_a_patch_leaves_of_an_allocation_that_the_world_refuses_is_found(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(MIDWAY)
    fuzz = ["fuzz", "--target", RELEASE, "--patch", "one_more.py", "--seed", "2", "--operations", "1500"]
    assert main([*fuzz, "--attention", "full+sliding", "--oracle", "contract"]) == 1
    (trace,) = [path for path in Path("findings").glob("*.json") if "whole" not in path.name]
    assert [type(one).__name__ for one in read_trace(trace).trace.operations] == ["Submit", "Starved"]
    assert main(["replay", str(trace), "--patch", "one_more.py"]) == 1
    assert main(["replay", str(trace), "--target", RELEASE]) == 0
    file.write_text(MIDWAY.replace("if not page(count)", "if False"))
    capsys.readouterr()
    assert main([*fuzz, "--attention", "full+sliding"]) == 3
    assert "calls were to be refused, and none was" in capsys.readouterr().out
    file.write_text("import vllm\n")
    assert main([*fuzz, "--refuse", "no_such:thing"]) == 3
    assert "--refuse: 'no_such:thing' cannot be refused: No module named 'no_such'" in capsys.readouterr().err


@pytest.mark.slow
@needs_release
def test_a_finding_of_a_patched_release_is_replayed_with_its_patch_only(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--patch", "one_more.py", "--target", RELEASE]
    assert main(["fuzz", *options, "--seed", "1", "--operations", "500", "--attention", "full"]) == 1
    (trace,) = [path for path in Path("findings").glob("*.json") if "whole" not in path.name]
    spec = read_trace(trace).target
    assert spec == Patch(("one_more.py",)).over(RELEASE)
    capsys.readouterr()
    assert main(["replay", str(trace)]) == 2
    assert "if you trust that code, add --target" in capsys.readouterr().err
    assert main(["replay", str(trace), "--patch", "one_more.py"]) == 1
    assert main(["replay", str(trace), "--target", RELEASE]) == 0
    file.write_text(ONE_MORE + "\n# changed")
    capsys.readouterr()
    assert main(["replay", str(trace), "--target", spec]) == 1
    assert f"one_more has changed since it was recorded: {spec[-8:]} then" in capsys.readouterr().err


@pytest.mark.slow
@needs_release
def test_a_patch_that_changes_nothing_agrees_with_the_model_of_the_release(file: Path) -> None:
    file.write_text("import vllm\n")
    spec = Patch(("one_more.py",)).over(RELEASE)
    assert interpreter_of(spec)[0] == spec
    target = open_target(spec)
    assert target.name == spec
    target.close()
    assert main(["fuzz", "--target", spec, "--seed", "2", "--operations", "300"]) == 0


def test_the_families_claim_a_patched_release_whatever_its_patch_is_called() -> None:
    assert families()["vllm"].claims(f"{RELEASE}+plugin.kv:register")
    assert not families()["vllm"].claims("vllm:make")


def test_a_patch_is_begun_and_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "new", "my-plugin", "--like", "vllm", "--folder", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    patch, test = tmp_path / "my_plugin_patch.py", tmp_path / "test_my_plugin_patch.py"
    assert lines[0] == f"wrote {patch} and {test}; they change nothing of {RELEASE} yet:"
    assert lines[1] == f"  blockproof fuzz --target {RELEASE} --patch {patch} --seconds 20"
    text = patch.read_text()
    assert "class MyPluginPool(pools.BlockPool):" in text
    assert lines[2].strip() in text
    compile(text + test.read_text(), "begun", "exec")
    assert main(["targets", "new", "my-plugin", "--like", RELEASE, "--folder", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["targets", "new", "other", "--like", "nonsense", "--folder", str(tmp_path)]) == 2
    assert "no patch can be begun for 'nonsense'" in capsys.readouterr().err


@needs_release
@pytest.mark.slow
def test_the_patch_that_is_begun_agrees_with_its_release(tmp_path: Path) -> None:
    assert main(["targets", "new", "mine", "--like", RELEASE, "--folder", str(tmp_path)]) == 0
    patched = ["--target", RELEASE, "--patch", str(tmp_path / "mine_patch.py")]
    assert main(["fuzz", *patched, "--seed", "1", "--operations", "1000", "--out", str(tmp_path / "out")]) == 0


def test_options_may_be_given_as_variables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def run(job: CiJob) -> int:
        taken.append(job.target)
        return 0

    monkeypatch.setattr("blockproof.fuzz.testing.ci.run", run)
    monkeypatch.setattr("blockproof.fuzz.cli.patches.patched_name", lambda spec, patch: f"{spec}+{patch.text}")
    for name, value in {"PATCH": "one_more.py", "WITHOUT": "a,b", "WITH": "", "TARGET": RELEASE}.items():
        monkeypatch.setenv(f"BLOCKPROOF_{name}", value)
    assert main(["ci"]) == 0
    assert taken == [f"{RELEASE}+without=a+without=b+one_more.py"]


@needs_release
@pytest.mark.slow
def test_a_patch_with_a_design_is_judged_without_the_model(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('DESIGNS = ("compressed_4",)\nBLOCK_SIZES = (2,)\n')
    spec = Patch(("one_more.py",)).over(RELEASE)
    assert main(["fuzz", "--target", spec, "--seed", "2", "--operations", "300", "--attention", "full"]) == 0
    said = capsys.readouterr()
    assert "the target does by design compressed_4, of which no model knows" in said.err + said.out
    target = open_target(spec)
    assert suited_to(spec, target) == ("shadow", "contract", "liveness")
    assert block_sizes_of(target) == (2,)
    target.close()
