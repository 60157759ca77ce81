"""CDR-Bench's identities, metrics and files; shared by task building, scoring and evaluation."""
