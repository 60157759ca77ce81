"""One command's main per file."""
