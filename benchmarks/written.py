"""What the scripts that write a page have in common: the machine they ran on, and where the page goes."""

import os
import platform
import sys
from pathlib import Path


def command() -> str:
    """The command that was given, as a page names it."""
    return " ".join(["python", *sys.argv])


def processor() -> str:
    """The name of the processor; of its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def bind_to_one_core() -> None:
    """Stay on one core from now on, with all child processes; nothing where the system cannot do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def put(text: str, file: Path | None) -> None:
    """Write a page, or print it where no file is given."""
    if file is None:
        print(text)
    else:
        file.write_text(text, encoding="utf-8")
        print(f"written to {file}")
