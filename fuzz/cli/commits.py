"""What the commands share that try several commits of a repository."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..releases.commit_target import Wanted

AdapterOption = Annotated[
    Path | None,
    typer.Option(help="With --git: a file or folder with the target, which all commits use as it is now."),
]
PathOption = Annotated[str, typer.Option(help="With --git: the folder in it where modules are, such as src.")]


def commit_target_or_usage(target: str | None, path: str, adapter: Path | None) -> "Wanted":
    """The target of each commit. BadParameter, in one line, if it is no factory or the path leads elsewhere."""
    from ..opening.own_code import FORMS, is_factory
    from ..releases.commit_target import Wanted

    if target is None or not is_factory(target):
        raise typer.BadParameter(f"--git needs --target with one of {FORMS}, a target that each commit makes")
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise typer.BadParameter(f"--path: {path} is not below the repository; write it relative to that, as in src")
    return Wanted(target, path, adapter)
