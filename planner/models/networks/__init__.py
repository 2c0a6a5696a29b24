"""Whole networks over packed batches: decoders, and encoders of text, images and sound."""

from planner.models.networks.network import Network
