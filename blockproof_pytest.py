"""What pytest loads where blockproof is installed: the plugin, under a name that no folder of a project hides.

A folder `blockproof` with an `__init__.py`, as one for tests of it may be called, takes the place of the package where
it is found first, as with `python -m pytest`. Then the tests of that project run all the same, and a line says why the
plugin is not there.
"""

from importlib import import_module

try:
    _plugin = import_module("blockproof.fuzz.testing.pytest_plugin")
except ModuleNotFoundError as error:
    if not str(error.name).startswith("blockproof"):
        raise
    _there = getattr(import_module("blockproof"), "__file__", None) or "another folder of this name"
    _REMEDY = "call that folder otherwise, or run pytest by its own name"

    def pytest_report_header() -> str:
        """Says that the plugin is not there, and why."""
        return f"blockproof: no plugin, since {_there} hides the package; {_REMEDY}"
else:
    globals().update({name: value for name, value in vars(_plugin).items() if name.startswith("pytest_")})
