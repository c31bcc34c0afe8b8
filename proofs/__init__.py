"""Theorems and exhaustive exploration."""
