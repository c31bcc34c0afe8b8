"""The shadow memory: is what a query reads what was once written there for it (properties.md §3)?"""

from .books import KNOWN_LOSSES
from .engine import Shadow
from .memory import GARBAGE, POISON, Corruption, ListMemory, Memory, demand_blocks

__all__ = ["GARBAGE", "KNOWN_LOSSES", "POISON", "Corruption", "ListMemory", "Memory", "Shadow", "demand_blocks"]
