"""The liveness oracle: a small scheduler drives a core; every request that can finish must finish (properties.md
§4)."""

from .judge import judge
from .rules import PROPERTIES
from .script import draw_script, is_script, simpler_scripts

__all__ = ["PROPERTIES", "draw_script", "is_script", "judge", "simpler_scripts"]
