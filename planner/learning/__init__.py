"""Trains a policy of a cluster that many jobs share: it imitates a teacher, then improves on what came of it."""

from planner.learning.train import Training, TrainingPlan, train_policy
