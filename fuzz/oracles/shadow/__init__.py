"""The shadow memory: checks that queries read what was written for them (properties.md §3)."""

from .engine import Shadow
from .memory import GARBAGE, POISON, Corruption, ListMemory, Memory
from .pooled import PooledShadow

__all__ = ["GARBAGE", "POISON", "Corruption", "ListMemory", "Memory", "PooledShadow", "Shadow"]
