"""How runs are drawn: from a seed, in several processes; and what is kept of them.

Every engine fills in a `Summary`, which holds the first finding with the trace that shows it.
"""
