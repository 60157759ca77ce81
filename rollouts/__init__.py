"""Let a model answer a task, alone or over several turns with tools."""
