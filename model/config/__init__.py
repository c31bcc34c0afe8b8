"""The arithmetic of configurations, to be read as `arith`, `layers`, `grouping`, `capacity`, beside `config_json`;
`§` is a section of specs-and-config.md, `[S-..]` and `[C-..]` are ids of its section 16."""
