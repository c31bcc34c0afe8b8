"""The pool of blocks: who holds them, what they contain, in which order they are reused (core.md §§2, 4, 5)."""
