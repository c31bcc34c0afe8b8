"""The safety contract (properties.md §2): properties that every KV-cache core must have, checked without a model."""

from .oracle import Contract
from .properties import PROPERTIES, Violation, unobserved

__all__ = ["PROPERTIES", "Contract", "Violation", "unobserved"]
