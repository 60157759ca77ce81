"""CDR-Bench's prompts."""
