"""`--patch`, `--with`, `--path`, `--without` and `--refuse`, of every command that takes a release as its target."""

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from .options import guarded, usage

if TYPE_CHECKING:
    from ..opening.patches import Patch

PATCH, WITH, PATH, WITHOUT, REFUSE = "patch", "packages", "path", "without", "refuse"
PatchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--patch",
        metavar="FILE|MODULE",
        help="Change the release by this file or module first, as in my_patch.py, package.module or "
        "package.module:function; can be repeated.",
    ),
]
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PACKAGE", help="Put a package beside the patched release, NAME or NAME==VERSION."),
]
PathOption = Annotated[
    list[str] | None,
    typer.Option("--path", metavar="DIR", help="Put a folder on the import path of the patched release."),
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="NAME", help="Stand in for modules that cannot be imported here, NAME,NAME."),
]
RefuseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--refuse",
        metavar="CALL",
        help="Let some calls of this function fail, MODULE:CLASS.METHOD, or of the last --patch CLASS.METHOD; they "
        "return None, or raise with =ERROR behind the name. Can be repeated.",
    ),
]
_OPTIONS = {PATCH: PatchOption, WITH: WithOption, PATH: PathOption, WITHOUT: WithoutOption, REFUSE: RefuseOption}
Command = Callable[..., None]


def patchable(command: Command, *, beside: bool = False, handed: bool = False, variables: bool = False) -> Command:
    """The command with these options. Its option `target` gets the name of the patched release.

    If it takes several targets the last one is patched; with `beside` one target stands for itself and for itself with
    the patch. With `handed` the command gets the patch, as `over`, and no name. A command that has a `path` of its own,
    for `--git`, shares it. With `variables` each may be given as a variable, too, `--patch` as `BLOCKPROOF_PATCH`.
    """
    signature = inspect.signature(command)
    own_path = PATH in signature.parameters

    @wraps(command)
    def patched(**given: Any) -> None:
        own = given.get("git") is not None
        named = {name: given.pop(name) or () for name in _OPTIONS if not (own and name == PATH)}
        patch = _patch_of(**named)
        if own and patch is not None:
            raise typer.BadParameter(
                "--patch, --with, --without and --refuse change a release; with --git each commit is its own"
            )
        if own_path and not own:
            given[PATH] = None
        if handed:
            given["over"] = patch
        elif patch is not None:
            given["target"] = _named(given, patch, beside)
        command(**given)

    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=_by_variable(name, option) if variables else option,
            default=None,
        )
        for name, option in _OPTIONS.items()
        if name not in signature.parameters
    ]
    own = [one.replace(kind=one.KEYWORD_ONLY) for one in signature.parameters.values() if one.name != "over"]
    at = 1 + max((i for i, one in enumerate(own) if one.name in ("target", "trace")), default=-1)
    patched.__signature__ = signature.replace(parameters=[*own[:at], *more, *own[at:]])  # type: ignore[attr-defined]
    patched.__annotations__ = {**command.__annotations__, **{one.name: one.annotation for one in more}}
    patched.__annotations__.pop("over", None)
    return patched


def _by_variable(name: str, option: Any) -> Any:
    """The option, also given by a variable with its name."""
    kind, info = get_args(option)
    info = copy(info)
    info.envvar, info.show_envvar = f"BLOCKPROOF_{'with' if name == WITH else name}".upper(), False
    return Annotated[kind, info]


def _patch_of(
    patch: Sequence[str] = (),
    packages: Sequence[str] = (),
    path: Sequence[str] = (),
    without: Sequence[str] = (),
    refuse: Sequence[str] = (),
) -> "Patch | None":
    from ..opening.patches import Patch

    names = tuple(name.strip() for text in without for name in text.split(","))
    made = Patch(tuple(patch), tuple(packages), tuple(path), names, tuple(refuse))
    with usage():
        made.check()
    return made or None


def _named(given: dict[str, Any], patch: "Patch", beside: bool) -> str | list[str] | None:
    """What the command is to take as its target: the patched release. BadParameter if no release is to be patched. None
    if a trace would say so that is not there, which the command itself says."""
    named = given["target"]
    if isinstance(named, list):
        last = patched_name(named[-1] if named else "", patch)
        return [*named, last] if beside and len(named) == 1 else [*named[:-1], last]
    return patched_name(named, patch) if named else _patched_recorded(given, patch)


def _patched_recorded(given: dict[str, Any], patch: "Patch") -> str | None:
    """The release that a trace names, with the patch."""
    trace = given.get("trace")
    found: object = None
    if isinstance(trace, Path):
        if not trace.is_file():
            return None
        with suppress(ValueError):  # said by what reads it
            found = json.loads(trace.read_bytes())
    if isinstance(found, dict) and isinstance(name := found.get("target"), str):
        return patched_name(name, patch)
    return patched_name("", patch)


def patched_name(spec: str, patch: "Patch") -> str:
    """The name of a release with a patch, its packages fetched. BadParameter if it is no release."""
    from ..adapters import example
    from ..opening.names import ReleaseName, parsed_or_none
    from ..opening.packages import plugins_in, with_packages
    from ..opening.targets import interpreter_of
    from ..targets.family import unpatched

    named = parsed_or_none(spec)
    if not isinstance(named, ReleaseName):
        what = f"{spec} is none" if spec else "none is named"
        raise typer.BadParameter(
            f"--patch, --with, --path, --without and --refuse change a release, and {what}: --target {example()}"
        )
    release = unpatched(spec)
    name, place = guarded(lambda: interpreter_of(release))
    whole, folders = guarded(lambda: with_packages(patch, named.family, place))
    beside = (*whole.packages, *whole.paths)
    plugins = plugins_in([*folders, *map(Path, whole.paths)], named.family)
    if not whole.sources and beside and (whole.packages or plugins):
        what = f"{', '.join(beside)} lies beside the release, and nothing of it is applied"
        which = f"its plugin, as in --patch {plugins[0]}" if plugins else "what applies it with --patch"
        print(f"blockproof: {what}; name {which}", file=sys.stderr)
    return whole.over(name)
