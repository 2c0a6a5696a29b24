"""Encoders in the gaps that an LLM leaves: what there is to place, where it goes, and what that is compared with."""

from planner.strategies.bubbles.bubble_baselines import baseline_alternatives
from planner.strategies.bubbles.encoder_modes import encoder_modes, numbers_of_passes
from planner.strategies.bubbles.encoder_passes import GapProblem, gap_problem
from planner.strategies.bubbles.gap_schedule import POLICIES, GapSchedule, GapStream
from planner.strategies.bubbles.placed_plan import placed
