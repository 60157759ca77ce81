"""Our scorers in the shapes that other trainers call: verl's reward loop and TRL's GRPO trainer.

All score through `score_answer`, the table that our own loops use, so a reward is the same number
wherever it is computed.
"""

from rewards.adapters.rows import files_of, task_of
from rewards.adapters.trl import last_message, trl_reward
from rewards.adapters.verl import FILES, SCORED_TEXT, TRUNCATED, numbers, verl_compute_score

__all__ = [
    "FILES",
    "SCORED_TEXT",
    "TRUNCATED",
    "files_of",
    "last_message",
    "numbers",
    "task_of",
    "trl_reward",
    "verl_compute_score",
]
