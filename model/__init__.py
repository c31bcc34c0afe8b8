"""The specification: what a paged KV-cache core must do, derived from what attention needs."""
