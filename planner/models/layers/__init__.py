"""Layers of networks: attention, MLPs, mixtures of experts, state spaces, and the linear layers and norms in them."""
