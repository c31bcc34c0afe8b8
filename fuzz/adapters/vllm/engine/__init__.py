"""An engine of a release: its own scheduler over its core, and connectors whose other half is ours."""
