"""KramaBench: typed answers in two readings, sub-task credit, paraphrase judges."""
