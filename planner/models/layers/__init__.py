"""Layers of networks: attention, MLPs, mixtures of experts, state spaces, and the linear layers and norms in them."""

from planner.models.layers.layer import NetworkLayer
from planner.models.layers.position_encoding import PositionEncoding, encoding_tensors
