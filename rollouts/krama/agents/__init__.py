"""Agents of other projects as environments: their loop, our sandbox, budget and model calls."""
