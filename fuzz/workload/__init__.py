"""Generates random shapes of cores, and random operations on them."""
