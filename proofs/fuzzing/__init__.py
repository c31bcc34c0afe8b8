"""Attacks the prover: random functions with random claims, settled and compared with brute force."""
