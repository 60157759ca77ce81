"""Static pages of results."""
