"""The arithmetic of configurations: what cores answer, what is right, and where releases differ from it."""
