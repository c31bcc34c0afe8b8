"""The guide to an engine of one's own: what it shows is what the files of the examples say and what commands print."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.opening.engines import open_engine_here

from .commands import differs, output_of
from .pages import DOCS, ROOT, blocks

ENGINE = ROOT / "examples" / "my-engine"
PAGE = (DOCS / "guide" / "your-engine.md").read_text(encoding="utf-8")
TARGET = "my_target.py:make_target"
FINDS_THE_BUG = f"blockproof fuzz --target {TARGET} --seed 1 --seconds"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The engine of the page in a folder of its own, which is the current one."""
    for name in ("my_engine.py", "my_target.py", "bug.patch"):
        shutil.copy(ENGINE / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name == "my_engine" or name.startswith("my_target"):
            del sys.modules[name]


def test_the_page_shows_the_target_of_the_example():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    assert blocks[0] == (ENGINE / "my_target.py").read_text(encoding="utf-8")


def test_the_first_run_draws_the_finding_in_the_words_of_its_page(tmp_path, monkeypatch, capsys):
    page = (DOCS / "guide" / "first-run.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ blockproof (fuzz --target fault:.*)$", page, re.M)
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 1
    lines = output_of(page, f"blockproof {command}")
    assert not differs(lines, capsys.readouterr().out)
    (file,) = (line.split()[1] for line in lines if line.startswith("page:"))
    (sentence,) = re.findall(r"\*(Block \d.*?)\*", " ".join(page.split()))
    assert sentence in Path(file).read_text(encoding="utf-8")


def test_targets_new_writes_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["targets", "new", "my-engine"]) == 0
    assert differs(output_of(PAGE, "blockproof targets new"), capsys.readouterr().out) == ""


def test_the_check_says_what_the_page_says(folder, capsys):
    assert main(["targets", "check", TARGET]) == 0
    assert differs(output_of(PAGE, "blockproof targets check my_target"), capsys.readouterr().out) == ""


def test_an_engine_to_be_simulated(tmp_path, monkeypatch, capsys):
    page = (DOCS / "guide" / "engines.md").read_text(encoding="utf-8")
    engine = "my_engine_engine.py:make_engine"
    monkeypatch.chdir(tmp_path)
    assert main(["targets", "new", "my-engine", "--engine"]) == 0
    assert differs(output_of(page, "blockproof targets new"), capsys.readouterr().out) == ""
    assert main(["targets", "check", "--engine", engine]) == 0
    assert differs(output_of(page, "blockproof targets check"), capsys.readouterr().out) == ""
    assert main(["simulate", "--target", engine, "--steps", "300", "--seed", "1"]) == 0
    assert differs(output_of(page, "blockproof simulate"), capsys.readouterr().out) == ""


def test_a_pair_that_is_begun_for_you(tmp_path, monkeypatch, capsys):
    """It survives what is drawn; without its lease, or without patience, it does not."""
    page = (DOCS / "guide" / "engines.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["targets", "new", "my-pd", "--pair"]) == 0
    assert differs(output_of(page, "blockproof targets new my-pd"), capsys.readouterr().out) == ""
    assert main(["targets", "check", "--engine", "my_pd_pair.py:make_engine"]) == 0
    assert main(["simulate", "--target", "my_pd_pair.py:make_engine", "--steps", "2000", "--seed", "1"]) == 0
    text = Path("my_pd_pair.py").read_text(encoding="utf-8")
    mistakes = {
        "memory": {"LEASE = 40": "LEASE = 4", "+ LONGEST > self.job.until": "< 0", "now > self.job.until": "now < 0"},
        "progress": {"- self.heard > PATIENCE": "< 0"},
    }
    for judge, changes in mistakes.items():
        broken = text
        for right, wrong in changes.items():
            assert right in broken
            broken = broken.replace(right, wrong)
        Path("broken.py").write_text(broken, encoding="utf-8")
        command = ["simulate", "--target", "broken.py:make_engine", "--steps", "4000", "--shrink-seconds", "0"]
        assert main([*command, "--seed", "1"]) == 1
        assert f"\nnew: {judge}: " in capsys.readouterr().out


def test_a_pair_from_an_empty_file(tmp_path, monkeypatch, capsys):
    page = (DOCS / "guide" / "engines.md").read_text(encoding="utf-8")
    (source,) = (
        text for text in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "import EnginePair\n" in text
    )
    monkeypatch.chdir(tmp_path)
    Path("my_pair.py").write_text(source, encoding="utf-8")
    assert main(["targets", "check", "--engine", "my_pair.py:make_engine"]) == 0
    assert differs(output_of(page, "blockproof targets check --engine my_pair.py"), capsys.readouterr().out) == ""
    assert main(["simulate", "--target", "my_pair.py:make_engine", "--seed", "4", "--steps", "4000"]) == 1
    assert "new: progress: nothing happens any more" in capsys.readouterr().out
    (file,) = Path("findings").glob("*.json")
    assert main(["replay", str(file), "--target", "my_pair.py:make_engine", "--show"]) == 1
    told = [line[:9] for line in capsys.readouterr().out.splitlines()]
    assert {"network: ", "schedule:", "add r6: ["} <= set(told)


def test_a_connector_from_an_empty_file(tmp_path, monkeypatch, capsys):
    page = (DOCS / "guide" / "engines.md").read_text(encoding="utf-8")
    (source,) = (text for text in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "class MyStore" in text)
    monkeypatch.chdir(tmp_path)
    Path("my_store.py").write_text(source, encoding="utf-8")
    assert main(["targets", "check", "--engine", "my_store.py:make_engine"]) == 0
    assert differs(output_of(page, "blockproof targets check --engine my_store.py"), capsys.readouterr().out) == ""
    assert main(["simulate", "--target", "my_store.py:make_engine", "--seed", "1", "--steps", "20000"]) == 1
    said = next(line for line in page.splitlines() if line.startswith("new: tier: "))
    assert said in capsys.readouterr().out
    wrong = "for key in self.keys(tokens, asked) if key in self.places]"
    assert source.count(wrong) == 1
    right = "for key in takewhile(self.places.__contains__, self.keys(tokens, asked))]"
    assert right.partition(" in ")[2][:-1] in page
    Path("right.py").write_text("from itertools import takewhile\n" + source.replace(wrong, right), encoding="utf-8")
    assert main(["simulate", "--target", "right.py:make_engine", "--seed", "2", "--steps", "3000"]) == 0


def test_the_first_pair_is_right_as_long_as_nothing_happens(tmp_path):
    page = (DOCS / "guide" / "engines.md").read_text(encoding="utf-8")
    (source,) = (
        text for text in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "import EnginePair\n" in text
    )
    (tmp_path / "my_pair.py").write_text(source, encoding="utf-8")
    family = SimulatedFamily(open_engine_here(f"{tmp_path / 'my_pair.py'}:make_engine"))
    served = 0
    for number in range(40):
        story = family.draw(1, number)
        quiet = tuple(one for one in story.happenings if one.what not in ("crash", "part"))
        run = family.run_of(replace(story, happenings=quiet, network=()))
        assert run.run(3000) == []
        served += run.reached["ended: length"]
    assert served > 20


def test_a_forgotten_null_block_is_told_as_on_the_page(folder, capsys):
    file = folder / "my_target.py"
    text = file.read_text(encoding="utf-8")
    assert text.count("tuple(block + 1 for block in blocks)") == 1
    file.write_text(text.replace("tuple(block + 1 for block in blocks)", "tuple(blocks)"), encoding="utf-8")
    assert main(["targets", "check", TARGET]) == 1
    (wrong,) = (block.lines for block in blocks(PAGE) if block.lines[0].startswith("  WRONG "))
    assert differs(["...", *wrong, "..."], capsys.readouterr().out) == ""


def test_the_example_runs_and_nothing_is_found(folder, capsys):
    assert main(["fuzz", "--target", TARGET, "--seed", "1", "--operations", "2000"]) == 0
    out = capsys.readouterr().out
    assert "no difference in" in out
    assert all(f"contract: {situation}" in out for situation in ("hit", "S2 checked", "S7 checked", "S8 checked"))


def test_the_bug_of_the_page_is_found_and_shrunk_to_the_trace_on_it(folder, capsys):
    subprocess.run(["git", "apply", "bug.patch"], check=True)
    assert main(["targets", "check", TARGET]) == 0
    capsys.readouterr()
    assert main(["fuzz", "--target", TARGET, "--seed", "1", "--operations", "20000"]) == 1
    printed = capsys.readouterr().out
    assert differs(output_of(PAGE, FINDS_THE_BUG), printed) == ""
    (trace,) = set(re.findall(r"findings/s7_advance_[0-9a-f]{8}\.json", PAGE))
    assert f"trace:  {trace}" in printed
    assert main(["replay", trace, "--target", TARGET, "--show"]) == 1


def test_the_package_of_an_engine_is_importable_without_its_init_as_the_page_says(tmp_path):
    (tmp_path / "nano-vllm" / "nanovllm" / "engine").mkdir(parents=True)
    (tmp_path / "nano-vllm" / "nanovllm" / "__init__.py").write_text("raise ImportError('no GPU')")
    (tmp_path / "nano-vllm" / "nanovllm" / "engine" / "block_manager.py").write_text("class BlockManager: pass")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "ModuleType" in block]
    (tmp_path / "tests").mkdir()
    script = tmp_path / "tests" / "it.py"
    script.write_text("\n".join(line.strip() for line in code.splitlines()))
    ran = subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_every_field_of_a_snapshot_has_its_empty_value_on_the_page():
    from blockproof.fuzz.targets.answers import problem_with_answer
    from blockproof.model.ops import Done
    from blockproof.model.snapshot import Snapshot

    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (?:`([^`]+)`|wanted)[^|]*\|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == list(Snapshot._fields)
    empty = {name: eval(value, {}) if value else [{}] for name, value in rows}
    assert problem_with_answer(Done(), Snapshot(**empty), 1) is None


def test_the_names_on_the_page_are_legal():
    from blockproof.fuzz.targets.declarations import HIDES, LACKS, OFFERS

    section = PAGE[PAGE.index("## `hides` and `lacks`") : PAGE.index("## Designs that are no mistakes")]
    named = set(re.findall(r'`"([\w.=]+)"`', section))
    assert len(named) >= 5
    assert named <= LACKS.keys() | OFFERS.keys()
    assert {"free_order", "tables"} <= HIDES.keys()


def test_the_designs_on_the_page_are_all_there_are():
    from blockproof.fuzz.targets.declarations import DESIGNS, LACKS

    section = PAGE[PAGE.index("## Designs that are no mistakes") : PAGE.index("## Engines that are hard")]
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) in `(\w+)`", section, re.MULTILINE)
    by_place = {place: " ".join(names for names, at in rows if at == place) for _, place in rows}
    named = {place: set(re.findall(r"`(\w+)", names)) for place, names in by_place.items()}
    assert named["designs"] == DESIGNS.keys()
    assert {"Preempt", "Lookup"} <= named["lacks"] <= LACKS.keys()
    assert named["hides"] == {"tables"}
