"""Encoders in the gaps that an LLM's timeline leaves, and what plans with such encoders are compared with."""

from planner.strategies.bubbles.bubble_baselines import baseline_alternatives

__all__ = ["baseline_alternatives"]
