"""The two names that a block's content has (core.md §3)."""

from typing import NewType

BlockHash = NewType("BlockHash", bytes)
"""Names the content of a block and of everything before it."""
BlockHashWithGroupId = NewType("BlockHashWithGroupId", bytes)
"""A `BlockHash` followed by the group id in 4 bytes, big endian: the key under which a block is registered."""
