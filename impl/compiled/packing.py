"""A wheel of the compiled build, for machines without a compiler: a distribution of its own beside the pure one."""

import base64
import hashlib
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from .place import PACKAGE, built

NAME = "blockproof_fast"


def pack(out: Path) -> Path:
    """Write the wheel of the present build to this folder, and return its path.

    It holds `blockproof.impl_compiled` alone, and requires exactly the version of the pure core that it was made from.
    FileNotFoundError if the present sources have not been compiled.
    """
    folder = built()
    if folder is None:
        raise FileNotFoundError("our core has not been compiled from its present sources; run: blockproof fast")
    pure = PACKAGE.split(".")[0]
    number, python = version(pure), f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    info = f"{NAME}-{number}.dist-info"
    files = {f"{pure}/{path.relative_to(folder.parent)}": path.read_bytes() for path in _contents(folder)}
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: {pure}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {number}\n"
        f"Summary: The core of {pure}, compiled\nRequires-Dist: {pure}=={number}\n"
    ).encode()
    rows = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{NAME}-{number}-{tag}.whl"
    with ZipFile(wheel, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def _contents(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc"]


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
