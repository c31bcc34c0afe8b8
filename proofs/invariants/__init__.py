"""What holds in a core of any size: invariants that every operation keeps, whatever the state that it begins in."""
