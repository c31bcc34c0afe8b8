"""Liveness: a small scheduler drives a core, and everything that can finish must (properties.md §4)."""

from .judge import judge
from .rules import PROPERTIES
from .script import draw_script, is_script, simpler_scripts

__all__ = ["PROPERTIES", "draw_script", "is_script", "judge", "simpler_scripts"]
