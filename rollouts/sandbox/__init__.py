"""A jail for model-written Python: `await run(code, files, fetch, limits, seed) -> Result`.

Covered and not covered: SECURITY.md. How it is built and how to use it: docs/sandbox.md.
"""
