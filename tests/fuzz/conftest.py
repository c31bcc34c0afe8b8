"""What several folders of tests share: releases, each of which takes seconds to start."""

from collections.abc import Callable, Iterator

import pytest
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.targets.base import Target, close_target


@pytest.fixture(scope="session")
def started_once() -> Iterator[Callable[[str], Target]]:
    """The target of a name, the same for all tests of this process: each test starts a core of its own on it."""
    opened: dict[str, Target] = {}

    def give(name: str) -> Target:
        if name not in opened:
            opened[name] = open_target(name, deadline_s=60)
        return opened[name]

    yield give
    for target in opened.values():
        close_target(target)
