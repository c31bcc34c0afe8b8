"""The shadow memory: is what a query reads what was once written there for it (properties.md §3)?"""

from .books import KNOWN_LOSSES
from .engine import Shadow
from .memory import GARBAGE, POISON, Corruption, ListMemory, Memory, check_block_ids

__all__ = ["GARBAGE", "KNOWN_LOSSES", "POISON", "Corruption", "ListMemory", "Memory", "Shadow", "check_block_ids"]
