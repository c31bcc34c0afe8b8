"""The ground: what a run leaves behind (a trace, a finding), and how it is put into words."""
