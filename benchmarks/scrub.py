"""How long the page of a long trace takes to make and to go through: milliseconds of processor time a step, and bytes.

python benchmarks/scrub.py [--steps 2000] [--blocks 100000] [--oracle lockstep,shadow]

Requests of 1,000 to 4,000 tokens come and go on our core, 60 at a time. Needs the extra `dev` and Chromium
(BLOCKPROOF_CHROMIUM names another executable).
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page.html import write_page
from blockproof.fuzz.page.trace_document import trace_document
from blockproof.fuzz.traces.judges import Judges
from blockproof.fuzz.traces.trace_file import TraceFile
from blockproof.model.ops import Advance, Allocate, Free, Group, Lookup, Operation, Shape, Submit

KEYS = (("ArrowRight", 80), ("PageDown", 40), ("ArrowLeft", 80), ("End", 1), ("PageUp", 40))
"""Keys of the page, and how often each is pressed."""
PRESS = """(key) => new Promise((done) => {
  document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  requestAnimationFrame(() => setTimeout(done));
})"""


def main() -> int:
    """Make the page, go through it, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--oracle", default="lockstep,shadow")
    asked = parser.parse_args()
    trace, begin = traffic(asked.steps, asked.blocks), time.process_time()
    oracles = tuple(asked.oracle.split(","))
    document = trace_document(TraceFile(trace), open_target("impl"), Judges(oracles, "as asked for"), "traffic")
    seconds = time.process_time() - begin
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        write_page(document, page)
        print(f"{len(document.steps):,} steps of {asked.blocks:,} blocks under {asked.oracle}: {seconds:.0f} s")
        print(f"of processor time to make, {page.stat().st_size:,} bytes", flush=True)
        scrub(page)
    return 0


def traffic(steps: int, blocks: int) -> Trace:
    """A trace of so many operations on a pool of so many blocks; a window and full attention."""
    shape = Shape((Group("full", 16), Group("sliding", 16, window=1024)), blocks, 8192, 16, 16, 8192)
    draw, live, operations = Random(1), list[str](), list[Operation]()
    for number in range(steps):
        name, length = f"r{number}", draw.randrange(1000, 4000)
        prompt = tuple(draw.randrange(1000) for _ in range(length))
        operations += [Submit(name, prompt), Lookup(name), Allocate(name, length), Advance(name, (1,))]
        live.append(name)
        for who in draw.sample(live, min(3, len(live))):
            operations += [Allocate(who, 1), Advance(who, (2,))]
        if len(live) > 60:
            operations.append(Free(live.pop(draw.randrange(len(live)))))
        if len(operations) >= steps:
            break
    return Trace(shape, tuple(operations[:steps]))


def scrub(page: Path) -> None:
    """Go through a page by its keys; print for each what a press took."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("BLOCKPROOF_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        # As in the tests: it may run as root, where Chromium has no sandbox, and opens a file of ours only.
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1400, "height": 900})
        view.goto(f"{page.as_uri()}#step=5")
        view.wait_for_selector("h1")
        view.wait_for_timeout(2000)
        busy = clock_of(view)
        for key, times in KEYS:
            spent = []
            for _ in range(times):
                before = busy()
                view.evaluate(PRESS, key)
                spent.append(1000 * (busy() - before))
            at = view.get_by_label("Step", exact=True).input_value()
            print(f"{key:10} median {statistics.median(spent):6.1f} ms, most {max(spent):6.1f} ms; then at step {at}")
        browser.close()


def clock_of(view: Any) -> Callable[[], float]:
    """Reads how many seconds of processor time the page's thread has worked."""
    session = view.context.new_cdp_session(view)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    return read


if __name__ == "__main__":
    sys.exit(main())
