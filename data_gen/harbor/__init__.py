"""Harbor task directories as tasks of ours."""
