"""What can be driven: adapters, child processes and their environments."""
