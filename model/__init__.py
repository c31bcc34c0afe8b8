"""The specification: what a paged KV-cache core must do, derived from what attention needs.

Read `ops` (the language), `arith` (closed forms), `identity` (content), `requests`, `attention` (rules of each type),
`state` (the pool), `lookup` (groups together), `snapshot` (what can be seen), `core` (every operation), `legal` (which
operations make sense), in this order. What lies between a model's layers and its pool is apart: `layers` (one layer's
pages and memory), `grouping` (layers that share a block table), `capacity` (blocks, checks, workers).
"""
