"""Planted faults: small mistakes made on purpose, each of which an oracle must find."""
