"""The specification: what a paged KV-cache core must do, derived from what attention needs.

Read in this order: `ops` (operations and outcomes), `arith` (closed forms), `attention` (rules of each type), `lookup`
(hits), `identity` and `state` (contents, requests, the pool), `tables` (what a core decides), `core` (every operation).
Beside it: `legal` (what a scheduler promises), `snapshot` (what can be observed); rules of rare `kinds`; arithmetic of
configurations in `config`, with its records and their JSON in `config_json`."""

from . import kinds as kinds
