"""The optimized core, with the public API of vLLM 0.23."""
