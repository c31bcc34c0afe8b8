"""Our core under the engine that it stands in for: the engine's own tests, and its scheduler over both cores."""
