"""DARE-bench: predictions of table tasks, read safely and scored in two readings."""
