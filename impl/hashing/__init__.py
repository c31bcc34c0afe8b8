"""Names for what a block contains (core.md §3)."""
