"""Encoder passes beside the passes and exchanges of a pipeline: what there is to place, where, and baselines."""
