"""What every run has: a folder, a log, checkpoints, a record, and how it stops."""
