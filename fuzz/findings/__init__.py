"""The types that every other folder uses: a finding, a trace, the names of the oracles, and their text forms."""
