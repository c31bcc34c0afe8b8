"""An engine's whole control plane under simulation: its own scheduler runs; clients, device and clock are ours."""
