"""The shadow memory: checks that queries read what was written for them (properties.md §3)."""

from .engine import Shadow
from .memory import GARBAGE, POISON, Corruption, ListMemory, Memory

__all__ = ["GARBAGE", "POISON", "Corruption", "ListMemory", "Memory", "Shadow"]
