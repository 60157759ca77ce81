"""Rejection sampling: keep rollouts by FV, AV, BV or DV as a training set."""
