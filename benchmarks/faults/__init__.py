"""Real faults in real commands: does each end as docs/checks.md says? See __main__.py."""
