"""Two engines of a release with a connector between them, and what stands for the libraries under it."""
