"""The machine of a case: its device's profile, its framework's traits, and the network that its row tells of."""

from planner.costs.static.assumed import adapter, complete, links
from planner.costs.static.machine import Machine
from planner.costs.static.wires import Wires
from planner.published.case import Case, Fabric
from planner.specs.profile import Device, Profile
from planner.specs.rates import Rates
from planner.specs.software import Software

NEAR_US, FAR_US = 3.0, 8.0  # a hop's latency within a node and between nodes: NCCL's smallest messages, rounded up


def machine(case: Case, profile: Profile, software: Software) -> Machine:
    """What prices a case."""
    rates = complete(profile.rates)
    return Machine(profile.device, rates, wires(case.fabric, profile.device, rates), software.timing)


def wires(fabric: Fabric, device: Device, rates: Rates) -> Wires:
    """What collectives reach of the links and adapters that a row states, or that such a device usually has."""
    near = fabric.node_gb_per_s or links(device)
    far = fabric.between_gb_per_s or adapter(device)
    return Wires(
        per_node=fabric.per_node,
        near_gb_per_s=near * (rates.link_share or 1.0),
        far_gb_per_s=min(far, near) * (rates.adapter_share or 1.0),
        near_us=NEAR_US,
        far_us=FAR_US,
    )
