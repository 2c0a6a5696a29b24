"""Checkpoints: their index, saving, and resuming from them."""
