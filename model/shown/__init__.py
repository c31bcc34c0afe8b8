"""What can be observed of a core: the snapshot, and what metrics follow."""
