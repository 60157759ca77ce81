"""Whatever produces tokens or words: the embedded engine, endpoints, scripts."""
