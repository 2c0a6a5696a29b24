"""Counts of several tasks in waves: what towers take on how many ranks, passes as a plan, and baselines."""
