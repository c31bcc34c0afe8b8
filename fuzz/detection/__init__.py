"""How soon planted faults are found, by one way of drawing and by another: trials, statistics, report."""
