"""Campaigns of hours or days: tasks that any process can do, a store that survives any kill, a rule that shares out."""
