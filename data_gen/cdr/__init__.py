"""CDR-Bench's construction: from a corpus to verified tasks on five tracks."""
