"""The specs under the name that vLLM gives their module."""

from .specs.interface import *  # noqa: F403
from .specs.interface import __all__ as __all__  # its list of names is the only one
