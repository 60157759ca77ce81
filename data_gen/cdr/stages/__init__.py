"""The construction at any size: maps over documents, and merges of small facts."""
