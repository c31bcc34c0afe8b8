"""Fetches the tests of a release: they come with its source distribution on the package index.

They are kept, with what they need to run, in a folder beside the installed releases, never in a repository.
"""

import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ..opening import environments
from ..opening.child import Place
from ..opening.commands import run
from ..opening.environments import InstallError
from ..targets.family import Family, OwnTests

_PIP = ("-P", "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1")
_COMPLETE = "complete"


class Fetched(NamedTuple):
    """The tests of a release, ready to run."""

    tests: Path
    """Folder of the source distribution, of which the tests are unpacked."""
    tools: Path
    """Folder with the packages that they need."""


def fetch_tests(family: Family, release: str, place: Place, say: Callable[[str], None]) -> Fetched:
    """The tests of this release, fetched unless they are here already. InstallError, in one line, if that fails.

    `place` is the environment of the release; pip runs in its interpreter, since the build asks for torch.
    """
    own = own_tests_of(family)
    home = environments.home() / f"tests-{family.name}-{release}"
    fetched = Fetched(home / f"{family.distribution}-{release}", home / "tools")
    if (home / _COMPLETE).exists():
        return fetched
    home.mkdir(parents=True, exist_ok=True)
    say(f"installing what the tests of {family.spec(release)} need")
    _run([str(place.python), *_PIP, "install", "--target", str(fetched.tools), *own.test_needs], {})
    with TemporaryDirectory(prefix=".fetching-", dir=home) as scratch:
        build, archive = Path(scratch, "build"), Path(scratch, "archive")
        _run([str(place.python), *_PIP, "install", "--target", str(build), *own.build_needs], {})
        say(f"downloading the source distribution of {family.spec(release)}")
        options = ("--no-binary", family.distribution, "--no-deps", "--no-build-isolation", "--dest", str(archive))
        command = [str(place.python), *_PIP, "download", *options, f"{family.distribution}=={release}"]
        _run(command, {**own.build_environment, "PYTHONPATH": str(build)})
        say("unpacking its tests")
        (path,) = archive.iterdir()
        _unpack(path, home, [f"{fetched.tests.name}/{start}" for start in own.unpacked])
    (home / _COMPLETE).touch()
    return fetched


def own_tests_of(family: Family) -> OwnTests:
    """The tests of the family's reference release. InstallError if it has none."""
    if family.own_tests is None:
        raise InstallError(f"{family.name} has no tests that can be run here")
    return family.own_tests()


def _unpack(archive: Path, into: Path, starts: Sequence[str]) -> None:
    with tarfile.open(archive) as opened:
        members = [member for member in opened.getmembers() if member.name.startswith(tuple(starts))]
        opened.extractall(into, members, filter="data")


def _run(command: Sequence[str], more: Mapping[str, str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = run(command, environment={**clean, **more})
    if ran.status:
        raise InstallError(f"{' '.join(command[3:6])} ... failed: {ran.error}")
