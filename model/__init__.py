"""The specification: what a paged KV-cache core must do, derived from what attention needs.

Read `ops` (the language), `arith` (closed forms), `identity` (content), `requests`, `attention` (rules of each type),
`state` (the pool), `lookup` (groups together), `snapshot` (what can be seen), `core` (every operation), `legal` (which
operations make sense), in this order.
"""
