"""Communication: what tp, cp, ep and pp send, and what replicas owe each other."""

from planner.costs.network.layer_traffic import layer_groups
