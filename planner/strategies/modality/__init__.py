"""Layouts of all modules of a job at once: their candidates, the search among them, simple plans to compare with."""

from planner.strategies.modality.layouts_at_mix import LayoutsAtMix, LayoutsOnBatches
