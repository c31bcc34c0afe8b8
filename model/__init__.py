"""The specification: what a paged KV-cache core must do, derived from what attention needs.

Read `ops` (the language), `arith` (closed forms), `identity`, `attention` (rules of each type), `lookup` (groups
together), `state` (the pool), `core` (every operation), in this order.
"""
