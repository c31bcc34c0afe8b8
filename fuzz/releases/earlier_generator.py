"""The generator of operations (`fuzz/workload`) as it was at a commit of this repository."""

from pathlib import Path

from ..findings.writing import write_file
from .bisect import BisectError
from .git import Git

GENERATOR = "fuzz/workload"


def write_generator(name: str, folder: Path) -> str:
    """Write the generator of the commit of this name into a folder. Returns the first digits of the commit's hash.

    ValueError, in one line, if this is no repository, there is no such commit, or it has no generator there.
    """
    root = Path(__file__).resolve().parents[2]
    try:
        git = Git.of_repository(root)
        commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
        if not commit:
            raise ValueError(f"{name!r} is no commit of {root}; git log shows what there is")
        files = git("ls-tree", "--name-only", commit, f"{GENERATOR}/").splitlines()
        sources = [path for path in files if path.endswith(".py")]
        if not sources:
            raise ValueError(f"{name!r} has no {GENERATOR}; name a later commit")
        for path in sources:
            write_file(folder / Path(path).name, git("show", f"{commit}:{path}") + "\n")
    except BisectError as error:
        raise ValueError(str(error)) from None
    return commit[:12]
