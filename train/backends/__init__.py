"""The same training over many devices: verl, DeepSpeed, and what they need."""
