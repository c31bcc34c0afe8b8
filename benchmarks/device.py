"""The data plane where it runs, on one page: docs/evidence/device.md.

python benchmarks/device.py [--device cuda] [--release FOLDER] [--quick] [--write FILE]
python benchmarks/device.py [--device cuda] --code

FOLDER is that of the packages in which a release of vLLM is installed; its kernels are measured beside ours. Without
a GPU the page says what the CPU does, and no times. Ends with 1 if something is wrong, with 3 if there is no such
device; what is slower than it should be is said and no error. The page names the code that it is of by a digest of its
sources; `--code` says that of these.
"""

import sys
from datetime import date
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from textwrap import wrap
from time import perf_counter

import device_attention
import device_pages
import device_speed
import device_steps
import torch
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.impl import tensors as tensors_package
from blockproof.impl.tensors.kernel_choice import kernel_module
from blockproof.impl.tensors.queues import CudaQueue, HostQueue
from written import command, parser, processor, put, table


def code() -> str:
    """Which code is measured: a digest of the sources."""
    tensors, here = Path(tensors_package.__path__[0]), Path(__file__).parent
    digest = sha256()
    for file in (*sorted(tensors.glob("*.py")), *sorted(here.glob("device*.py"))):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _lines() -> int:
    files = Path(tensors_package.__path__[0]).glob("*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


class Page:
    """What was found, in lines; and what is wrong."""

    def __init__(self, device: str, quick: bool) -> None:
        self.device, self.quick = device, quick
        self.on_gpu = device.startswith("cuda")
        self.kernels = "triton" if self.on_gpu else "torch"
        self.queue: type[HostQueue] = CudaQueue if self.on_gpu else device_steps.LateQueue
        self.lines: list[str] = []
        self.wrong: list[str] = []

    def head(self) -> None:
        name = torch.cuda.get_device_name() if self.on_gpu else "no GPU"
        packages = ["torch", "triton", "numpy"] if find_spec("triton") else ["torch", "numpy"]
        self.lines += [
            "# On the device",
            "",
            f"Written by `{command()}`;",
            "[what is measured and how](../../benchmarks/README.md#the-device).",
            "",
            f"* {date.today()}, {name}, host {processor()}",
            f"* Python {sys.version.split()[0]}, {', '.join(f'{each} {version(each)}' for each in packages)}",
            f"* {_lines():,} lines in `impl/tensors`; 1,005 before the device had its tables",
            f"* of the code `{code()}`; `python benchmarks/device.py --code` names the one here",
            "",
        ]

    def steps(self) -> None:
        """Random steps, pages and queries, and planted faults."""
        rows = []
        for kernels, device in {(self.kernels, self.device), ("torch", "cpu")}:
            number = 2_000 if self.quick else 100_000
            begun = perf_counter()
            queue = self.queue if device == self.device else device_steps.LateQueue
            opened = device_steps.opener(kernels, device, queue)
            differ = sum(each is not None for each in device_steps.steps(number, 11, opened))
            rows.append([kernels, device, f"{number:,}", differ, f"{perf_counter() - begun:.0f}"])
            self._expect(not differ, f"{differ} steps differ with {kernels} on {device}")
            cases = device_pages.cases(number // 100, 11, kernel_module(torch.device(device), kernels), device)
            wrong = [each for each in cases if each]
            self._expect(not wrong, f"{kernels} on {device}: {wrong[:1]}")
        self._section(
            "Tables and slots against their definition",
            table("kernels | device | steps: | differ: | seconds:", sorted(rows)),
        )
        rows = []
        modules = [f"{self.kernels}_kernels", *([] if self.on_gpu else ["device_tables"])]
        for module in modules:
            for what, old, new in device_steps.FAULTS[module]:
                number_found = device_steps.found(module, old, new, self.kernels, self.device)
                rows.append([what, module, number_found or "not found"])
                self._expect(number_found is not None, f"not found: {what}")
        for what, old, new in device_pages.FAULTS[f"{self.kernels}_kernels"]:
            number_found = device_pages.found(f"{self.kernels}_kernels", old, new, self.device)
            rows.append([what, "pages, attention", number_found or "not found"])
            self._expect(number_found is not None, f"not found: {what}")
        self._section("Faults planted into the kernels", table("fault | module | found at step or case:", rows))

    def attention(self) -> None:
        """Comparisons, faults, and how fast a decode is."""
        number = 1_000 if self.quick else 10_000
        done = device_attention.served(1, self.device, self.kernels, number, None)
        self._expect(done.worst < device_attention.WRONG, f"attention differs by {done.worst}")
        text = (
            f"{done.compared:,} queries of {done.made} requests, full and window, with {done.hits} hits, {done.copied} "
            f"hits inside a block, {done.preempted} preemptions: worst difference {done.worst:.1e}, from attention in "
            "64 bits over memory that was never paged."
        )
        rows = []
        for what, plant in device_attention.FAULTS.items():
            broken = device_attention.served(1, self.device, self.kernels, 20_000, plant)
            seen = broken.worst > device_attention.WRONG
            rows.append([what, broken.compared if seen else "not found"])
            self._expect(seen, f"not found: {what}")
        self._section("Attention", [*wrap(text, 108), "", *table("fault | found at comparison:", rows)])
        if self.on_gpu:
            self._decode_speed()

    def _decode_speed(self) -> None:
        rows = []
        for shape in (device_attention.Decode(*each) for each in ((256, 1024), (256, 4096), (64, 8192), (16, 8192))):
            for kernels in ("triton", "sdpa", "torch"):
                if kernels == "torch" and shape.requests * shape.context > 2**19:
                    continue
                tokens, moved = device_attention.decode_speed(shape, self.device, kernels)
                named = {"triton": "ours", "sdpa": "torch: gathered, then its own attention", "torch": "torch, ours"}
                rows.append([shape.requests, shape.context, named[kernels], f"{tokens:,.0f}", f"{moved / 1e12:.2f}"])
        self._section(
            "Tokens a second of one layer: 32 heads, 8 of keys, 128 wide, bfloat16",
            table("requests: | context: | kernel | tokens/s: | TB/s of keys and values:", rows),
        )

    def speed(self, release: Path | None) -> None:
        """Steps of tables and slots, beside the release's."""
        if not self.on_gpu:
            return
        done = device_speed.speed(self.device, release, 2 if self.quick else 6)
        head = device_speed.HEAD if release else " | ".join(device_speed.HEAD.split(" | ")[:6])
        text = []
        for name, ratios in (("engine", done.to_engine), ("kernels", done.to_kernels)):
            if ratios:
                text.append(
                    f"* Against its {name}: geometric mean {device_speed.mean(ratios):.1f}, least {min(ratios):.1f}."
                )
        for each in done.missed:
            text += wrap(f"* Not as it should be: {each}.", 108, subsequent_indent="  ")
        self._section("Microseconds of a step, beside vLLM's kernels", [*table(head, done.rows), "", *text])

    def shadow(self) -> None:
        """How long the harness takes with tensors on each device."""
        rows = []
        for where in ("cpu", *([self.device] if self.on_gpu else [])) * 2:
            summary = Summary("impl", "random", 2)
            plan = Plan(2, operations=600 if self.quick else 3_000, oracles=("lockstep", "shadow"), tensors=where)
            begun = perf_counter()
            run_random(open_target("impl"), plan, summary)
            rows.append([where, f"{summary.operations:,}", summary.finding or "none", f"{perf_counter() - begun:.1f}"])
            self._expect(summary.finding is None, f"{where}: {summary.finding}")
        self._section("`fuzz --tensors`", table("device | operations: | finding | seconds:", rows))

    def _section(self, name: str, lines: list[str]) -> None:
        self.lines += [f"## {name}", "", *lines, ""]
        print(f"== {name}", *lines, sep="\n", flush=True)

    def _expect(self, right: bool, otherwise: str) -> None:
        if not right:
            self.wrong.append(otherwise)


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument("--release", type=Path, help="packages among which a release of vLLM is installed")
    made.add_argument("--quick", action="store_true", help="a tenth of each")
    made.add_argument("--only", nargs="+", default=["speed", "steps", "attention", "shadow"], help="parts of the page")
    made.add_argument("--code", action="store_true", help="say which code this is and on which device, and end")
    asked = made.parse_args()
    if asked.device.startswith("cuda") and not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no GPU here: run this where there is one, or with --device cpu")
        return 3
    if asked.code:
        print(f"code {code()}, {torch.cuda.get_device_name() if asked.device.startswith('cuda') else 'no GPU'}")
        return 0
    page = Page(asked.device, asked.quick)
    page.head()
    for part in asked.only:
        begun = perf_counter()
        page.speed(asked.release) if part == "speed" else getattr(page, part)()
        print(f"{part}: {perf_counter() - begun:.0f} s", flush=True)
        if asked.write or part == asked.only[-1]:  # what is there if the machine is taken away
            put("\n".join(page.lines).rstrip() + "\n", asked.write)
    for each in page.wrong:
        print(f"wrong: {each}")
    return 1 if page.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
