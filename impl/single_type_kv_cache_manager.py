"""The managers under the name that vLLM gives their module."""

from .managers.by_spec import *  # noqa: F403
from .managers.by_spec import __all__ as __all__  # its list of names is the only one
