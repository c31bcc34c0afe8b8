"""What is drawn: shapes of cores and operations on them."""
