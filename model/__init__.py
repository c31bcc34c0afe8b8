"""The specification: what a paged KV-cache core must do, derived from what attention needs.

Read in this order: `ops` (operations and outcomes), `arith` (closed forms), `attention` (rules of each type), `lookup`
(hits), `identity` and `state` (contents, requests, the pool), `tables` (what a core decides), `core` (every operation).
Beside it: `legal` (what a scheduler promises), `snapshot` (what can be observed), `metrics`; `decisions` that only
cores of today make, in `features`; rules of rare `kinds`; arithmetic in `config`, its records and JSON in
`config_json`."""

from . import kinds as kinds
