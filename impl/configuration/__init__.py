"""From layers and memory to groups and numbers of blocks (specs-and-config.md)."""
