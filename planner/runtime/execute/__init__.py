"""Trains a plan on one rank: its loop, its executor of tasks, and where steps come from."""
