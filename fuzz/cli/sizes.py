"""Sizes of memory, as options take them."""

import re

import typer

UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
UNITS |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
MOST_MEMORY = 2**60
LEAST_BYTES = 2**20
"""Fewer bytes than these were not meant as bytes."""


def parse_memory(text: str) -> int:
    """Bytes in `60GiB`, `80 GB`, `1.5TiB` or a plain number. BadParameter says what is wrong."""
    match = re.fullmatch(r"([+-]?)(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip())
    if match is None or match[3].lower() not in UNITS:
        raise typer.BadParameter(f"--memory: {short(text)} is not a size; write bytes, or as in 60GiB, 80GB, 512MiB")
    whole, _, part = match[2].partition(".")
    # Exact, since a float would lose bytes; and the size is bounded before anything is multiplied.
    if len(whole) > 30 or len(part) > 30:
        raise typer.BadParameter(f"--memory: {short(text)} is more than 1 EiB, or too many digits")
    size: int = int(whole + part) * UNITS[match[3].lower()] // 10 ** len(part)
    if match[1] == "-" or size == 0:
        raise typer.BadParameter(f"--memory: {short(text)}: there must be more than 0 bytes for the cache")
    if size > MOST_MEMORY:
        raise typer.BadParameter(f"--memory: {short(text)} is more than 1 EiB")
    if not match[3] and size < LEAST_BYTES:
        number = text.strip()
        raise typer.BadParameter(f"--memory: {number} is {number} bytes; did you mean {number}GiB?")
    return size


def short(text: str) -> str:
    """The text as a message quotes it."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
