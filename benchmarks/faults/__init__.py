"""Real faults in real commands: does each end as docs/reliability.md says? See __main__.py."""
