"""The safety contract (properties.md §2): what any KV-cache core must keep to, judged without a model of it."""

from .oracle import Contract
from .properties import KNOWN_LOSSES, PROPERTIES, Violation, unobserved

__all__ = ["KNOWN_LOSSES", "PROPERTIES", "Contract", "Violation", "unobserved"]
