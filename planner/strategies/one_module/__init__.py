"""The search of a layout for a module that is alone: what is simulated, the plainest near it, and alternatives."""
