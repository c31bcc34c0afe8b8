"""Request logs of real services as a workload: who arrives when, with which prefix, and what a core makes of it."""
