"""The specification: what a paged KV-cache core must do, derived from what attention needs.

Read in this order: `ops` (operations and outcomes), `arith` (closed forms), `identity` (contents of blocks),
`requests`, `attention` (rules of each attention type), `state` (the pool), `lookup` (hits over all groups), `snapshot`
(what can be observed), `core` (every operation), `legal` (which operations are allowed). The arithmetic of
configurations is separate: `config`, with its records and their JSON in `config_json`.
"""
