"""Does a target answer as targets must? Scripted scenarios, each answer explained to the target's author."""

from .check import check_target
from .lines import Conformance, Line

__all__ = ["Conformance", "Line", "check_target"]
