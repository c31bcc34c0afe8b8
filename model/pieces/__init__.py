"""Pieces of which every core is made, each by itself: `classes`, what specs are and who serves them; `parts`, hashes
and their keys, the free queue, rates.

`§` is a section of specs-and-config.md, `[C-..]` are ids of its section 16."""
