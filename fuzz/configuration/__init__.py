"""The arithmetic between layers and blocks, fuzzed: questions drawn, asked of model and target, compared, shrunk."""
