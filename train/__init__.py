"""Supervised fine-tuning, Dr.GRPO and evaluation."""
