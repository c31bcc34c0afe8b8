"""Git for tests, without the user's settings."""

import os
import subprocess
from pathlib import Path

USER = {f"GIT_{role}_{what}": "somebody@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    """What git prints in this folder."""
    environment = {**os.environ, **USER, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.strip()
