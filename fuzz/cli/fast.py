"""`blockproof fast`: our core compiled to C, beside the pure one."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption
from .outputs import to_folder


def fast(
    built: Annotated[bool, typer.Option("--built", help="Only say whether it is built.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Compile every module anew.")] = False,
    wheel: Annotated[Path | None, to_folder("Put it into a wheel in this folder, too.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compile our core from its sources (docs/guide/fast.md); the target impl-compiled and the package
    blockproof.impl_compiled are then there. The pure core stays the default.

    Exits with 0 if it is there, 1 with --built if it is not, 3 if it cannot be compiled: Cython or a C compiler is
    missing (pip install '/path/to/blockproof[fast]').
    """
    from ..adapters.impl_package import compile_impl, compiled_impl, wheel_of_compiled_impl

    folder, packed = compiled_impl(), None
    try:
        if not built and (folder is None or again):
            folder = compile_impl(again, lambda line: print(line, file=sys.stderr, flush=True))
        if wheel is not None and folder is not None:
            packed = wheel_of_compiled_impl(wheel)
    except OSError as error:
        print(f"blockproof: {error}", file=sys.stderr)
        raise typer.Exit(3) from None
    if as_json:
        print(json.dumps({"built": folder is not None, "folder": _text(folder), "wheel": _text(packed)}))
    elif folder is None:
        print("our core has not been compiled from its present sources; run: blockproof fast")
    else:
        print(f"compiled: {folder}")
        if packed is not None:
            print(f"wheel: {packed}")
    raise typer.Exit(0 if folder is not None else 1)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
