"""Run configurations: frozen dataclasses read from strict YAML with dotted overrides."""

# The environment variable with the key of an endpoint, where a setting names no other.
KEY_ENV = "OPENAI_API_KEY"
