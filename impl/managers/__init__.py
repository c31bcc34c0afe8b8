"""Who gets blocks, and which may be reused: one manager for each group, and all of them together (core.md §§6-10)."""
