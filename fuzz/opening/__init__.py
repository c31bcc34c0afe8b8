"""From names on the command line to open targets, calculators, memories and oracles."""
