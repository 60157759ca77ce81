"""DARE-bench: reading its format, making gold, building new tasks from real tables."""
