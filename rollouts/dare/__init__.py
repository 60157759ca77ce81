"""DARE-bench: scripted agents, and why an episode failed."""
