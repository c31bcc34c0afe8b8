"""What a run reports: summary, tables, floors, progress."""
