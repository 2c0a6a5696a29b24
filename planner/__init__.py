"""planner: decide how to spread a model over a cluster, prove the decision, launch it, check it."""

__version__ = "0.1.0"
