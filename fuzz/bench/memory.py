"""How much memory a core takes, to be asked of a process that has done nothing else."""

import ctypes
import gc
from contextlib import suppress

from ..opening.serve import resident_bytes
from ..targets.driver import Driver
from .workload import Facts, Params, shape_of, use_every_block


def memory_of(driver: Driver, params: Params) -> Facts:
    """Resident bytes that the process has grown by: when a core is `built`, when each block was `used` once and is
    cached, and when it is `empty` again, with nothing cached.

    Parameters: `pool` blocks, `groups`. A small core is built and used at first, so that what is loaded late does not
    count.
    """
    shape = shape_of({**params, "model_length": 8192}, int(params["pool"]))
    warm = shape_of({**params, "model_length": 8192}, 600)
    driver.build(warm)
    use_every_block(driver, warm)
    driver.build(shape_of({**params, "model_length": 8192}, 8))
    before = _resident()
    core = driver.build(shape)
    built = _resident() - before
    use_every_block(driver, shape)
    used = _resident() - before
    driver.reset()
    empty = _resident() - before
    del core
    return {"blocks": shape.num_blocks, "built": built, "used": used, "empty": empty}


def _resident() -> int:
    """Resident bytes when what is free has been given back to the system."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
    return resident_bytes()
