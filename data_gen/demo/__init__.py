"""The demo's tasks: short refinement tasks from real prose, and order groups.

settings (operators in words, how many, how hard) → inject (items to clean, put into prose) →
refinements (recipe, text and gold of a task) → cli.
"""
