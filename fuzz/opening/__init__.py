"""Turns names from the command line into targets, calculators, memories and oracles.

Also here: child processes for targets (`child`, `serve`, `wire`) and installed releases (`environments`).
"""
