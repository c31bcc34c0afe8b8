"""The compiled core behaves as the pure one, and the declarations of C types fit the sources."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import LOCKSTEP
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.pair import Pair
from blockproof.impl.compiled import PACKAGE, NotBuiltError, building, load, place

IMPL = place.SOURCES
DECLARATIONS = sorted(IMPL.rglob("*.pxd"))


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    try:
        return load()
    except NotBuiltError as error:
        pytest.skip(str(error))


def fuzzed(target: Any, operations: int, **plan: Any) -> Summary:
    done = Summary(target.name, "random", 7)
    run_random(target, Plan(7, operations=operations, **plan), done)
    return done


# What a .pxd says of a module: names of classes with their attributes, its own variables as those of a class without a
# name, and of functions with their locals.


def declared(text: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    attributes: dict[str, list[str]] = {}
    functions: dict[str, list[str]] = {}
    owner, told = "", []
    for line in re.sub(r"\(\n.*?\n *\)", lambda found: " ".join(found[0].split()), text, flags=re.DOTALL).splitlines():
        if line and not line.startswith((" ", "@")):
            owner = ""
        if found := re.match(r"cdef class (\w+)", line):
            owner = found[1]
            attributes[owner] = []
        elif found := re.match(r"cdef \w+ (\w+)$", line):
            attributes.setdefault("", []).append(found[1])
        elif found := re.match(r"    cdef public .* (\w+)$", line):
            attributes[owner].append(found[1])
        elif found := re.match(r" *@cython\.locals\((.*)\)$", line):
            told = re.findall(r"(\w+)=", found[1])
        elif found := re.match(r" *cpdef .*?(\w+)\(", line):
            functions[f"{owner}.{found[1]}".strip(".")], told = told, []
        elif line.strip() and not re.match(r"from|cimport|    cdef dict __dict__$|cdef class", line):
            raise AssertionError(f"a line that this test does not understand: {line!r}")
    return attributes, functions


def unfit(declaration: str, source: str) -> list[str]:
    """What a .pxd says that its source does not, and attributes that it leaves out."""
    attributes, functions = declared(declaration)
    known_attributes = {name: said for path in DECLARATIONS for name, said in declared(path.read_text())[0].items()}
    tree, problems = ast.parse(source), []
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    written = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, node in classes.items():
        written |= {f"{name}.{one.name}": one for one in node.body if isinstance(one, ast.FunctionDef)}
    given = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    variables = {ast.unparse(one.targets[0] if isinstance(one, ast.Assign) else one.target) for one in given}
    problems += [f"no variable {name}" for name in attributes.pop("", ()) if name not in variables]
    for name, said in attributes.items():
        if name not in classes:
            problems.append(f"no class {name}")
            continue
        properties = {one.name for one in classes[name].body if isinstance(one, ast.FunctionDef)}
        stored = {
            one.attr
            for one in ast.walk(classes[name])
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and ast.unparse(one.value) == "self"
        } - properties
        stored |= {ast.unparse(one.target) for one in classes[name].body if isinstance(one, ast.AnnAssign)}
        inherited = {attr for base in classes[name].bases for attr in known_attributes.get(ast.unparse(base), ())}
        problems += [f"{name}.{attr} is not declared" for attr in sorted(stored - inherited - set(said))]
        problems += [f"{name} has no attribute {attr}" for attr in said if attr not in stored]
    for name, local in functions.items():
        if name not in written:
            problems.append(f"no function {name}")
            continue
        known = {one.id for one in ast.walk(written[name]) if isinstance(one, ast.Name)}
        problems += [f"{name} has no local {variable}" for variable in local if variable not in known]
    return problems


@pytest.mark.parametrize("path", DECLARATIONS, ids=lambda path: path.stem)
def test_a_declaration_fits_its_source(path: Path) -> None:
    assert unfit(path.read_text(), path.with_suffix(".py").read_text()) == []
    assert str(path.relative_to(IMPL).with_suffix(".py")) in map(str, building.hot_modules())


DECLARATION = """
cdef bint LARGE

cdef class Queue:
    cdef public list blocks

    @cython.locals(block=object)
    cpdef take(self, n)
"""
SOURCE = """
LARGE = True
class Queue:
    def __init__(self): self.blocks = []
    def take(self, n):
        for block in self.blocks: return block
"""


def test_a_declaration_that_fits() -> None:
    assert unfit(DECLARATION, SOURCE) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("self.blocks", "self.rows", "Queue.rows is not declared"),
        ("take", "pop", "no function Queue.take"),
        ("Queue", "Row", "no class Queue"),
        ("LARGE", "SMALL", "no variable LARGE"),
        ("block in self.blocks: return block", "_ in self.blocks: return n", "Queue.take has no local block"),
    ],
)
def test_a_declaration_that_does_not(old: str, new: str, problem: str) -> None:
    assert problem in unfit(DECLARATION, SOURCE.replace(old, new))


# The compiled core.


def test_what_is_hot_runs_compiled(compiled: ModuleType) -> None:
    for path in building.hot_modules():
        name = ".".join([compiled.__name__, *path.with_suffix("").parts])
        __import__(name)
        assert Path(str(sys.modules[name].__file__)).suffix == ".so", name


def test_the_compiled_core_agrees_with_the_model(compiled: ModuleType) -> None:
    done = fuzzed(open_target("impl-compiled"), 6_000)
    assert done.finding is None, done.finding
    assert done.operations >= 6_000


@pytest.mark.parametrize("chaos", [False, True])
def test_pure_and_compiled_do_the_same(compiled: ModuleType, chaos: bool) -> None:
    done = fuzzed(Pair(open_target("impl"), open_target("impl-compiled")), 4_000, chaos=chaos)
    assert done.finding is None, done.finding
    assert done.operations >= 4_000


@pytest.mark.parametrize("name", ["freed-to-the-front", "free-count-drifts", "common-prefix-too-long"])
def test_faults_can_be_planted_into_it(compiled: ModuleType, name: str) -> None:
    done = fuzzed(open_target(f"fault:{name}@impl-compiled"), 20_000, oracles=(LOCKSTEP,))
    assert done.finding is not None
    with pytest.raises(ValueError, match="there is no core 'imp' to plant it into"):
        open_target(f"fault:{name}@imp")


def test_it_has_types_of_its_own(compiled: ModuleType) -> None:
    import blockproof.impl as pure

    assert compiled.__name__ == PACKAGE
    assert compiled.KVCacheBlock is not pure.KVCacheBlock
    assert sys.getsizeof(compiled.KVCacheBlock(1)) <= sys.getsizeof(pure.KVCacheBlock(1))


# Making and finding a build, with a core of two modules.


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    pytest.importorskip("Cython")
    core = tmp_path / "core"
    (core / "pool").mkdir(parents=True)
    for path, text in {
        "__init__.py": "from .pool.block import Block\n",
        "pool/__init__.py": "",
        "pool/block.py": "class Block:\n    def __init__(self):\n        self.at = 1\n",
        "pool/block.pxd": "cdef class Block:\n    cdef public int at\n",
    }.items():
        (core / path).write_text(text)
    for module in (place, building):
        monkeypatch.setattr(module, "SOURCES", core)
    monkeypatch.setenv("BLOCKPROOF_HOME", str(tmp_path / "home"))
    before = loaded_modules()
    place.load.cache_clear()
    yield core
    place.load.cache_clear()
    loaded_modules()
    sys.modules.update(before)


def loaded_modules() -> dict[str, ModuleType]:
    """The modules of a compiled core, which are forgotten."""
    names = [name for name in sys.modules if f"{name}.".startswith(f"{PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in names}


def test_a_build_is_made_once_found_and_made_anew_where_a_source_has_changed(tiny: Path) -> None:
    said: list[str] = []
    assert place.built() is None
    with pytest.raises(NotBuiltError, match="has not been compiled from its present sources; run: blockproof fast"):
        load()
    folder = building.build(say=said.append)
    assert folder == building.build(say=said.append) == place.built()
    assert said == ["compiling 1 of 1 modules"]
    block = load().Block()
    with pytest.raises(TypeError):
        block.at = "a number in C"
    assert not list(folder.rglob("*.c"))
    (tiny / "__init__.py").write_text("from .pool.block import Block as Other\n")
    assert place.built() is None
    building.build(say=said.append)
    assert said[1:] == ["compiling 0 of 1 modules"]  # of which none has changed
    (tiny / "pool/block.pxd").write_text("cdef class Block:\n    cdef public long at\n")
    building.build(say=said.append)
    assert said[2:] == ["compiling 1 of 1 modules"]


def test_what_cannot_be_compiled_is_said_in_a_line(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(building.BuildError, match="there is no C compiler no-such-compiler: install one, or set CC"):
        building.build()
    monkeypatch.setattr(building, "find_spec", lambda name: None)
    with pytest.raises(building.BuildError, match=r"not installed; run: pip install '/path/to/blockproof\[fast\]'"):
        building.build()
    monkeypatch.undo()
    assert [path.name for path in (tiny.parent / "home/blockproof/compiled").iterdir()] == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["fuzz", "--target", "impl-compiled", "--operations", "10"], 3, "run: blockproof fast (it needs a C compiler"),
        (["mutants", "--target", "impl-compiled", "--only", "freed-to-the-front"], 3, "run: blockproof fast"),
        (["fast", "--built"], 1, "run: blockproof fast"),
        (["fuzz", "--target", "fault:freed-to-the-front@imp"], 2, "write one of impl, impl-compiled"),
    ],
)
def test_where_it_is_not_built_a_command_says_how_to_build_it(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "blockproof.fuzz.cli", *arguments],
        env={**os.environ, "BLOCKPROOF_HOME": str(tmp_path), "COLUMNS": "300"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
