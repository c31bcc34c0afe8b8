"""What `blockproof.fuzz` offers to tests of others."""

import subprocess
import sys

import pytest


def test_the_package_is_imported_without_hypothesis():
    """The child process of a target has none."""
    program = (
        "import sys; sys.modules['hypothesis'] = None; import blockproof.fuzz\n"
        "from blockproof.fuzz.adapters.vllm import style\n"
        "from blockproof.fuzz.opening import serve\n"
        "try: blockproof.fuzz.kv_cache_machine\n"
        "except ImportError: print('only the machine needs it')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("only the machine needs it\n", "")


def test_the_package_has_no_other_names():
    import blockproof.fuzz

    with pytest.raises(AttributeError, match="has no attribute 'machines'"):
        blockproof.fuzz.machines  # noqa: B018


def test_the_machine_that_has_gone_is_answered_with_the_one_that_is_there():
    with pytest.raises(ImportError, match="kv_cache_machine"):
        from blockproof.fuzz import lockstep_machine  # noqa: F401
