"""The arithmetic of configurations, fuzzed: questions are drawn, put to model and target, compared and shrunk."""
