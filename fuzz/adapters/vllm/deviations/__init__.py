"""Where released cores are known to differ from the specification, each deviation by its name."""
