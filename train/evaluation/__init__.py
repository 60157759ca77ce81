"""Scoring a model on held-out tasks."""
