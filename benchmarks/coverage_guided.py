"""Runs that are led by coverage, held against runs that are drawn: the benchmark of detection with an engine more.

python benchmarks/coverage_guided.py --setting led-states --against usual --seeds 10 --seconds 3

Takes what `blockproof bench detection` takes, and knows further settings (`--list`); one process only, so no `--jobs`.
What leads is in `led_reach.py`, what is made of it in `led_runs.py`.
"""

import sys
from functools import partial
from hashlib import sha256
from pathlib import Path

from blockproof.fuzz.cli.main import main
from blockproof.fuzz.detection.settings import SETTINGS, Setting
from blockproof.fuzz.engines.choice import ENGINES
from led_reach import Both, Edges, States
from led_runs import Leading, go_on, leave_out, run_led, same_core, vary

WAYS: dict[str, tuple[str, Leading]] = {
    "led-states": ("led by abstract states", Leading(States)),
    "led-edges": ("led by edges of model and core", Leading(Edges)),
    "led-both": ("led by abstract states and edges", Leading(lambda: Both(States(), Edges()))),
    "led-on": ("abstract states; runs only go on from them", Leading(States, (go_on,))),
    "led-core": ("abstract states; only core and odds are kept", Leading(States, (same_core,))),
    "led-vary": ("abstract states; choices are replaced", Leading(States, (vary, leave_out))),
    "led-more": ("abstract states; 7 of 8 runs are led", Leading(States, fresh=1)),
    "led-less": ("abstract states; 2 of 8 runs are led", Leading(States, fresh=6)),
    "led-long": ("runs go on while they bring new abstract states; none is led", Leading(States, fresh=8, patience=50)),
    "led-not": ("follows abstract states, but leads no run: what following costs", Leading(States, fresh=8)),
    "led-not-edges": ("follows edges, but leads no run", Leading(Edges, fresh=8)),
}


def add_settings() -> None:
    """Let the benchmark know them. Trials of them are made again where one of these files has changed."""
    here = Path(__file__).parent
    files = (Path(__file__), here / "led_reach.py", here / "led_runs.py")
    digest = sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]
    for name, (describe, leading) in WAYS.items():
        engine = f"{name}-{digest}"
        ENGINES[engine] = partial(run_led, leading=leading)
        SETTINGS[name] = Setting(name, describe, engine=engine)


if __name__ == "__main__":
    add_settings()
    sys.exit(main(["bench", "detection", *sys.argv[1:]]))
