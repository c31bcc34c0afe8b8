"""The harness: workloads, targets, oracles, traces, shrinking, reports and the command line."""
