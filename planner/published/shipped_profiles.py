"""Shipped profiles of devices and frameworks, and models, each read once, and the machine that they make of a case.

Thousands of records name the same few. The machine that prices a case has its device's rates, its framework's
coefficients, and its record's network.
"""

from functools import lru_cache

from planner.costs import MachineModel, NetworkLevel, NetworkModel
from planner.costs.compute import adapter_gb_per_s, complete_rates, link_gb_per_s
from planner.published.published_case import PublishedCase, StatedNetwork
from planner.specs import library
from planner.specs.base import MAX_RANKS, with_fields
from planner.specs.framework.dated_kernels import with_kernel
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.software import Software
from planner.specs.framework.timing_coefficients import TimingCoefficients, with_recipe
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.profile import Device, Profile
from planner.specs.model import Model
from planner.specs.named_files import read_software

NODE_LATENCY_US = 3.0  # latency of a hop within and between nodes: NCCL's smallest messages, rounded up
NETWORK_LATENCY_US = 8.0
# Whose time of an update in host memory stands for that of frameworks which do not say: whoever calls Adam on
# processors, it moves the same bytes.
UPDATES_AS = "megatron"


@lru_cache(maxsize=64)
def device_profile(name: str) -> Profile:
    """A device's profile. Raises InputError."""
    return library.read_named(name, Profile)[0]


@lru_cache(maxsize=64)
def framework_software(name: str) -> Software:
    """A framework's coefficients. Raises InputError."""
    return read_software(name)[0]


@lru_cache(maxsize=64)
def shipped_model(name: str) -> Model:
    """A shipped model. Raises InputError."""
    return library.read_named(name, Model)[0]


@lru_cache(maxsize=1)
def model_names() -> tuple[str, ...]:
    """Names of all shipped models."""
    return tuple(library.shipped_names(Model))


def machine_as_shipped(case: PublishedCase) -> MachineModel:
    """The machine of a case, from the shipped profiles of its device and framework. Raises InputError."""
    software = framework_software(case.software)
    return pricing_machine(case, device_profile(case.device), software.timing, software.accounting)


def pricing_machine(
    case: PublishedCase, profile: Profile, timing: TimingCoefficients, accounting: MemoryCoefficients
) -> MachineModel:
    """The machine of a case, from its device's profile and its framework's coefficients."""
    rates = complete_rates(profile.rates)
    network = reachable_network(case.network, profile.device, rates)
    return MachineModel(profile.device, rates, network, timing_of_case(timing, case), accounting)


def timing_of_case(timing: TimingCoefficients, case: PublishedCase) -> TimingCoefficients:
    """A framework's coefficients with what the case's record says of its kernels, its recipe and its overlap."""
    known = with_recipe(with_kernel(timing, case.attention_kernel), case.fp8_recipe)
    return with_fields(
        known,
        experts_at_once=case.experts_at_once,
        overlaps_replicas=known.overlaps_replicas if case.overlaps_replicas is None else case.overlaps_replicas,
        gathers_ahead=known.gathers_ahead if case.gathers_ahead is None else case.gathers_ahead,
        prefetches=known.prefetches and case.prefetches,
        host_update_ns=known.host_update_ns or framework_software(UPDATES_AS).timing.host_update_ns,
    )


def reachable_network(fabric: StatedNetwork, device: Device, rates: DeviceRates) -> NetworkModel:
    """Bandwidths that collectives reach on the stated links and adapters, else on the device's usual ones."""
    near = fabric.node_gb_per_s or link_gb_per_s(device)
    far = min(fabric.between_gb_per_s or adapter_gb_per_s(device), near)
    within = NetworkLevel(fabric.ranks_per_node, near * (rates.link_share or 1.0), NODE_LATENCY_US)
    return NetworkModel((within, NetworkLevel(MAX_RANKS, far * (rates.adapter_share or 1.0), NETWORK_LATENCY_US)))
