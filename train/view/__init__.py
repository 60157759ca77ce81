"""A static page of rollouts to read."""
