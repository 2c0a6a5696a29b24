"""Comparison of a run with one process: the reference, and the tolerance."""
