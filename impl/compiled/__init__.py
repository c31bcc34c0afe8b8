"""The same core, compiled to C by Cython: from these very files, beside the pure one, as `blockproof.impl_compiled`.

`load` imports the build, `building.build` makes it, `place` says where it lies. Nothing else of the core knows of it.
"""

from .place import PACKAGE, NotBuiltError, load

__all__ = ["PACKAGE", "NotBuiltError", "load"]
