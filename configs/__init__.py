"""Run configurations: frozen dataclasses read from strict YAML with dotted overrides."""
