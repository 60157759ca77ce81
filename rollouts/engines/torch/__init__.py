"""The embedded engine: decode on this machine's CPU or GPU with torch alone."""
