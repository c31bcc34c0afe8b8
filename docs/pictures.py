"""The pictures of the concepts, drawn from states of the model, and traces of what leads there.

python docs/pictures.py [--write]

Without `--write` it says which files are not what it would write, and ends with 1 if there are any.
"""

import sys
from pathlib import Path

from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.traces.trace_file import TraceFile, dump_trace
from picture_drawing import svg
from picture_scenes import SCENES
from picture_states import panels

HERE = Path(__file__).parent / "concepts"


def files() -> dict[str, str]:
    """The text of every file, by its name."""
    texts = {}
    for scene in SCENES:
        texts[f"pictures/{scene.name}.svg"] = svg(scene.title, panels(scene))
        trace = TraceFile(Trace(scene.shape, scene.operations), scene.target or "impl")
        texts[f"traces/{scene.name}.json"] = dump_trace(trace)
    return texts


def stale(folder: Path) -> list[str]:
    """Files in this folder that are not what would be written there, or that nothing writes."""
    texts = files()
    there = {str(path.relative_to(folder)) for part in ("pictures", "traces") for path in (folder / part).glob("*")}
    old = [name for name in texts.keys() & there if (folder / name).read_text(encoding="utf-8") != texts[name]]
    return sorted([*old, *(texts.keys() ^ there)])


def main() -> int:
    """Write the files, or say which are not up to date."""
    if sys.argv[1:] == ["--write"]:
        for name, text in files().items():
            path = HERE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return 0
    if names := stale(HERE):
        print(f"write them again with python docs/pictures.py --write: {', '.join(names)}")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
