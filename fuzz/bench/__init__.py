"""How fast cores are, side by side: `blockproof bench` ([bench](../../docs/guide/bench.md))."""
