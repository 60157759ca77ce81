"""The words around a task: templates in files, ours, a user's own, or those of a release."""
