"""Pages of hostile documents in a browser: names, error texts, reasons with markup, half characters, prototypes' names.

python benchmarks/hostile_pages.py [--documents N] [--seed N] [--write PAGE]

Makes documents of every kind as `report` makes them, opens each in one headless Chromium, goes through its steps and
clicks what can be clicked. Exits with 1 if anything ran, was asked for or complained about, or became an element.
Needs what the tests of the page need: Chromium, playwright, jinja2.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from playwright.sync_api import sync_playwright
from written import HOSTILE_PAGE, put_section

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.fuzz.page.hostile_pages import KINDS, Browsing, hostile_document  # these stand beside the tests


def main() -> int:
    """Open, look, count, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    executable = os.environ.get("BLOCKPROOF_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    done, wrong, begin = Counter[str](), Counter[str](), time.monotonic()
    with sync_playwright() as driver, tempfile.TemporaryDirectory(prefix="hostile-pages-") as name:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        browsing = Browsing(browser, Path(name))
        for number in range(asked.seed, asked.seed + asked.documents):
            kind = KINDS[number % len(KINDS)]
            complaints = browsing.wrong(hostile_document(kind, Random(f"{kind} {number}"), Path(name)))
            done[kind] += 1
            wrong.update(complaints)
            for complaint in complaints:
                print(f"{kind} {number}: {complaint}", file=sys.stderr)
        browser.close()
    kinds = ", ".join(f"{times} {kind}" for kind, times in done.items())
    said = [f"{done.total():,} hostile documents ({kinds}), seeds from {asked.seed}"]
    said += [f"{wrong.total():,} complaints; {time.monotonic() - begin:.0f} s"]
    put_section(asked.write, "Hostile texts in the page", HOSTILE_PAGE, said)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
