"""What a search of static layouts is given: a job's module on ranks of one kind, its memory, and what it fixes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from planner.costs import DISPATCHES, MachineModel, machine_of
from planner.costs.memory import allowed_bytes, device_accounting
from planner.errors import InputError
from planner.layouts.space.layout_fields import TrainingSetup, searched_overlap
from planner.plan.node_storage import host_bytes
from planner.plan.plan_file import Prices
from planner.specs.base import Ranks, with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.hardware.cluster import Cluster, device_of_rank, entry_of_kind, rank_kinds, ranks_of_kind
from planner.specs.hardware.profile import Device
from planner.specs.inputs import Inputs
from planner.specs.job import Limits
from planner.specs.parallelism import Dispatch, Parallelism
from planner.units import GIB

EVERY_KNOB = Knobs()


@dataclass(frozen=True, slots=True)
class LayoutProblem:
    """One job's module on ranks of one kind."""

    trained: TrainingSetup
    machine: MachineModel
    accounting: MemoryCoefficients
    limits: Limits
    knobs: Knobs = EVERY_KNOB  # what the job's framework can launch
    by_rates: bool = True  # whether plans are priced by the rates that the closed form has, as far as a layer goes
    beside: float = 0.0  # bytes that other modules hold on the same ranks
    host_bytes: float = inf  # of the memory of its host, that a rank may use
    stage_host_bytes: float = (
        0.0  # the same of a rank of a pipeline, where that is more: others of its host may use less
    )

    @property
    def device_bytes(self) -> float:
        """Bytes of a device."""
        return self.machine.device.memory_gib * GIB

    @property
    def allowed(self) -> float:
        """Bytes that a rank may hold of the module."""
        return allowed_bytes(self.machine.device, self.limits, self.accounting) - self.beside

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """How tokens may get to experts: as the job says, else every way that the framework has."""
        fixed, module = self.trained.fixed.dispatch, self.trained.module
        if fixed or module.routed_experts is None:
            return (fixed or "all_to_all",)
        return tuple(each for each in DISPATCHES if each in self.knobs.dispatch)


def layout_problem(inputs: Inputs, kind: str = "") -> LayoutProblem:
    """The problem of a job's first batch, on all ranks or those that it fixes for its only module, as if all were of
    this `kind`; "": of the first.
    """
    sizes, ranks = tuple(inputs.batches[0].items.values()), ranks_alone(inputs)
    fixed, count = fixed_fields(inputs), len(ranks) if ranks else inputs.cluster.size
    overlap = searched_overlap(fixed, inputs.software.knobs)
    trained = TrainingSetup(inputs.spec, count, sizes, fixed, overlap=overlap)
    kind = kind or inputs.cluster.ranks[0].kind
    device, first = inputs.devices[kind], ranks_of_kind(inputs.cluster, kind)[0]
    accounting = device_accounting(device, inputs.accounting)
    machine = machine_of(inputs.cluster, kind, device, inputs.rates.get(kind), inputs.timing, accounting)
    fits = entry_of_kind(inputs.profile.modules, f"{inputs.model.name}/{inputs.module}", kind)
    by_rates = fits is None and not inputs.profile.collectives
    problem = LayoutProblem(trained, machine, accounting, inputs.job.limits, inputs.software.knobs, by_rates)
    per_node = next(entry.per_node for entry in inputs.cluster.ranks if entry.kind == kind)
    return replace(problem, host_bytes=host_bytes(inputs.cluster, inputs.devices, first) / per_node)


def problems_by_kind(inputs: Inputs) -> tuple[dict[str, LayoutProblem], dict[str, int]]:
    """The problem on all ranks as if they were of each kind, and how many there are of it."""
    kinds = rank_kinds(inputs.cluster)
    return {kind: layout_problem(inputs, kind) for kind in kinds}, {
        kind: len(ranks_of_kind(inputs.cluster, kind)) for kind in kinds
    }


def priced_problem(
    trained: TrainingSetup,
    cluster: Cluster,
    devices: Mapping[str, Device],
    prices: Prices,
    limits: Limits,
    knobs: Knobs,
) -> LayoutProblem:
    """The problem of a module on ranks of a cluster's first kind, as a plan's prices have it."""
    machine = priced_machine(cluster, devices, prices, device_of_rank(cluster, 0))
    return LayoutProblem(trained, machine, machine.accounting, limits, knobs)


def priced_machine(cluster: Cluster, devices: Mapping[str, Device], prices: Prices, kind: str) -> MachineModel:
    """The machine of ranks of a kind, as a plan's prices have it."""
    accounting = device_accounting(devices[kind], prices.accounting)
    return machine_of(cluster, kind, devices[kind], prices.rates.get(kind), prices.timing, accounting)


def fixed_fields(inputs: Inputs) -> Parallelism:
    """All fields that the job fixes of its module's layout: in `fix.layouts`, or only in `layout`. Ranks are left out:
    those of several modules are found from one another, and of a module alone they are `ranks_alone`.

    Raises InputError for fields that exclude each other.
    """
    return with_fields(inputs.fixed_parallelism, ranks=None)


def ranks_alone(inputs: Inputs) -> Ranks | None:
    """The ranks that a job fixes for a module that is alone; None where it fixes none, or there are others. Raises
    InputError for others than the first ones.
    """
    ranks = inputs.fixed_parallelism.ranks
    if ranks is None or len(inputs.model.modules) > 1:
        return None
    if not isinstance(ranks, Ranks) or ranks[-1] >= inputs.cluster.size or ranks != Ranks(range(len(ranks))):
        where = f"{inputs.file} (fix.layouts.{inputs.module}.ranks)"
        message = f"`{inputs.module}` is the only module: its ranks are the first ones of {inputs.cluster.size}"
        raise InputError(message, where=where, fix=f"such as 0-{inputs.cluster.size - 1}, or leave ranks out")
    return ranks
