"""The demo's tasks: short refinement tasks from real prose."""
