"""What a layer keeps: the classes that describe it, and their sizes (specs-and-config.md §§2-5)."""
