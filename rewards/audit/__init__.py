"""What a family's scorer pays for answers made without the work."""
