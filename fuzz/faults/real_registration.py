"""Planted faults after real bugs (`real_bugs`)."""
