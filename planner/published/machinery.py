"""The machine that prices a case: its device's rates, its framework's coefficients, and its record's network."""

from planner.costs.compute.assumed import adapter, complete, links
from planner.costs.compute.machine import Machine
from planner.costs.network.network import Network, Reach
from planner.published.case import Case, Fabric
from planner.specs.base import MAX_RANKS
from planner.specs.profile import Device, Profile
from planner.specs.rates import Rates
from planner.specs.software import Software

NEAR_US, FAR_US = 3.0, 8.0  # latency of a hop within and between nodes: NCCL's smallest messages, rounded up


def machine(case: Case, profile: Profile, software: Software) -> Machine:
    """The machine of a case, from its device's profile and its framework."""
    rates = complete(profile.rates)
    return Machine(
        profile.device, rates, network(case.fabric, profile.device, rates), software.timing, software.accounting
    )


def network(fabric: Fabric, device: Device, rates: Rates) -> Network:
    """Bandwidths that collectives reach on the stated links and adapters, else on the device's usual ones."""
    near = fabric.node_gb_per_s or links(device)
    far = min(fabric.between_gb_per_s or adapter(device), near)
    within = Reach(fabric.per_node, near * (rates.link_share or 1.0), NEAR_US)
    return Network((within, Reach(MAX_RANKS, far * (rates.adapter_share or 1.0), FAR_US)))
