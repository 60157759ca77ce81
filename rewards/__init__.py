"""Scores against gold: pure functions, no torch, importable in well under 0.3 s."""
