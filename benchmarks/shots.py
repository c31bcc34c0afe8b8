"""Screenshots of the pages, made with the commands that a user has, in headless Chromium.

python benchmarks/shots.py FOLDER [--only NAME] [--docs docs/guide/pictures]

Writes pages and pictures to the folder, and with --docs those pictures that the guides show. Needs the extras `dev`
and `bench` (for small files), and Chromium (BLOCKPROOF_CHROMIUM names another executable). Exits with 1 if a page
complained on its console, asked for anything beside itself, or is wider than its window.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GEMMA = str(ROOT / "examples" / "gemma-3-27b.json")
FUZZ = ("fuzz", "--seed", "1", "--operations", "30000", "--out", ".")
CAMPAIGN = ("campaign", "--seed", "1", "--operations", "1500", "--attention", "full,sliding,mamba,full+sliding")
TARGETS = ("impl", "fault:window-left-behind-late", "fault:states-leak", "fault:eviction-does-nothing")


@dataclass(frozen=True)
class Shot:
    """A picture, and how it is come by."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    """Of blockproof, run in a folder of this name; exit codes 0 and 1 are as they should be."""
    page: str
    """Pattern of the page's file in that folder."""
    window: tuple[int, int] = (1280, 860)
    scheme: str = "light"
    place: str = ""
    """What stands behind `#` in the address."""
    keys: tuple[str, ...] = ()
    whole: bool = False
    """True for a picture of the whole page instead of what the window shows."""
    guide: bool = False
    """True if a guide shows it."""


def found(fault: str, *options: str) -> tuple[tuple[str, ...], ...]:
    """The commands that find a planted fault and make the page of the trace as it was found, before it was shrunk."""
    return ((*FUZZ, "--target", f"fault:{fault}", *options), ("report", "*_whole.json", "-o", "whole.html"))


ENGINE = "simulated:make_engine"
"""The example of an engine with a scheduler, whose folder is on the import path."""
STORY = (
    ("simulate", "--target", ENGINE, "--fault", "other-blocks", "--seed", "2", "--steps", "2000", "--out", "."),
    ("report", "simulated_*.json", "--target", ENGINE, "-o", "story.html"),
)
LOCKSTEP = found("window-left-behind-late", "--attention", "full+sliding", "--oracle", "lockstep")
SHOTS = (
    Shot("clean", (("fuzz", "--seed", "1", "--operations", "20000", "--json"), ("report", "run.json")), "run.html"),
    Shot("lockstep", LOCKSTEP, "whole.html", guide=True),
    Shot("shrunk", LOCKSTEP, "[!w]*.html"),
    Shot("shadow", found("registered-too-early", "--oracle", "shadow"), "[!w]*.html", guide=True),
    Shot("liveness", found("preempted-keeps-blocks", "--oracle", "liveness"), "[!w]*.html"),
    Shot(
        "campaign",
        (
            (*CAMPAIGN, *(word for one in TARGETS for word in ("--target", one)), "--out", "nightly"),
            ("report", "nightly", "-o", "campaign.html"),
        ),
        "campaign.html",
        guide=True,
    ),
    Shot(
        "plan",
        (("plan", GEMMA, "--memory", "60GiB", "--max-model-len", "131072", "--html", "plan.html"),),
        "plan.html",
        window=(1100, 1330),
        place="length=8192",
        guide=True,
    ),
    Shot("story", STORY, "story.html", guide=True),
    Shot("dark", LOCKSTEP, "whole.html", scheme="dark"),
    Shot("narrow", LOCKSTEP, "whole.html", window=(390, 844), whole=True),
    Shot("focus", LOCKSTEP, "whole.html", keys=("f", *["Tab"] * 4)),
)


def main() -> int:
    """Run the commands, open the pages, write the pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=[shot.name for shot in SHOTS])
    parser.add_argument("--docs", type=Path)
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("BLOCKPROOF_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    bad = 0
    with sync_playwright() as driver:
        # As in the tests: it may run as root, where Chromium has no sandbox, and opens files of ours only.
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for shot in (one for one in SHOTS if asked.only in (None, one.name)):
            made = page_of(shot, asked.folder.resolve())
            picture = asked.folder / f"{shot.name}.png"
            complaints = take(browser, shot, made, picture)
            bad += len(complaints)
            print(f"{picture}: {picture.stat().st_size:,} bytes, of a page of {made.stat().st_size:,}", flush=True)
            print("".join(f"  {line}\n" for line in complaints), end="")
            if shot.guide and asked.docs is not None:
                asked.docs.mkdir(parents=True, exist_ok=True)
                shutil.copy(picture, asked.docs)
        browser.close()
    return 1 if bad else 0


def page_of(shot: Shot, folder: Path) -> Path:
    """The page of a shot, after its commands have run; those of another shot with the same commands serve it, too."""
    first = next(one for one in SHOTS if one.commands == shot.commands)
    where = folder / first.name
    if not where.is_dir():
        where.mkdir(parents=True)
        for number, command in enumerate(shot.commands):
            run(command, number, where)
    return next(path for path in sorted(where.glob(shot.page)))


def run(command: Sequence[str], number: int, where: Path) -> None:
    """Run a command of blockproof in a folder; what it prints goes to a file there. SystemExit if it fails."""
    words = [str(next(where.glob(word)).name) if "*" in word else word for word in command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "examples" / "my-scheduler-engine")}
    with (where / ("run.json" if "--json" in command else f"{number}.txt")).open("w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "blockproof.fuzz.cli", *words], cwd=where, env=environment, stdout=out, check=False
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"blockproof {' '.join(words)} ended with {done.returncode} in {where}")


def take(browser: Any, shot: Shot, page: Path, picture: Path) -> list[str]:
    """Open a page and take its picture. Returns what is wrong with it."""
    width, height = shot.window
    view = browser.new_page(viewport={"width": width, "height": height}, color_scheme=shot.scheme)
    said: list[str] = []
    view.on("console", lambda message: said.append(message.text))
    view.on("pageerror", lambda error: said.append(str(error)))
    view.on("request", lambda asked: None if asked.url.startswith("file:") else said.append(f"asks for {asked.url}"))
    view.goto(page.as_uri() + (f"#{shot.place}" if shot.place else ""))
    view.wait_for_selector("h1")
    for key in shot.keys:
        view.keyboard.press(key)
    view.wait_for_timeout(300)
    if view.evaluate("document.documentElement.scrollWidth > innerWidth"):
        said.append("the page is wider than its window")
    view.screenshot(path=picture, full_page=shot.whole)
    view.close()
    make_smaller(picture)
    return said


def make_smaller(picture: Path) -> None:
    """Write a picture again with a palette, a third of the bytes; it stays as it is where Pillow is missing."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
