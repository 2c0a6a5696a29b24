"""Checks before launch: what cannot be run, and deadlocks."""
