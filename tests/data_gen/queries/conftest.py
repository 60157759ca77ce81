"""Every test here keeps its own cache of lakes."""

from lake_cache import own_cache

__all__ = ["own_cache"]
