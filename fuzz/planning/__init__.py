"""From a model's config.json and an amount of memory to groups, blocks and tokens (`blockproof plan`)."""
