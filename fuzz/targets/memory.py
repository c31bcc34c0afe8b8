"""A limit on memory (`ulimit -v`).

The OpenBLAS of numpy ends the process with 1, the code of a finding, where it has too little. So where there is a
limit, numpy is loaded before anything else, with one thread of OpenBLAS: each needs memory of its own. Whether that is
possible is tried in a process apart.
"""

import os
import resource
import subprocess
import sys

_LOAD = [sys.executable, "-P", "-c", "import numpy"]


def enough_memory() -> bool:
    """False if there is so little that numpy cannot be loaded. Where there is no limit nothing is tried."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return True
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        done = subprocess.run(_LOAD, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode == 0:
            import numpy  # noqa: F401
    except (OSError, MemoryError):
        return False
    return done.returncode == 0
