"""A module's costs in the form that plans carry, from the rates of a device and the traits of a framework."""

from planner.costs.static.activations import input_bytes, layer_bytes
from planner.costs.static.footprint import gathered_input, logit_bytes
from planner.costs.static.lines import compute_ms, head_fit, layer_fit, ring_fit, waits_ms
from planner.costs.static.machine import Machine
from planner.costs.static.replicas import UPDATE_BYTES, unhidden, update
from planner.costs.static.setup import Setup
from planner.costs.static.stage import stages
from planner.costs.static.step import step_seconds
from planner.costs.static.traffic import stage_send
from planner.specs.accounting import Accounting
from planner.specs.base import changed
from planner.specs.layers import kind_counts
from planner.specs.model import Module
from planner.specs.profile import Exposed, Fit, ModuleCosts, Passes
from planner.units import KIB, MS, US


def static_costs(module: Module, setup: Setup, machine: Machine, accounting: Accounting) -> ModuleCosts:
    """Of micro-batches about as long as the setup's, on one of its tp·cp ranks."""
    kept, working = layer_kib(module, setup, accounting)
    return ModuleCosts(
        source=machine.rates.source,
        spread=machine.rates.spread,
        layer=Passes(
            forward=layer_fit(module, setup, machine, True, compute_ms),
            backward=layer_fit(module, setup, machine, False, compute_ms),
            forward_waits=waits(module, setup, machine, True),
            backward_waits=waits(module, setup, machine, False),
            activation_kib_per_token=kept,
            working_kib_per_token=working,
        ),
        ends=Passes(
            forward=head_fit(module, setup, machine, True, compute_ms),
            backward=head_fit(module, setup, machine, False, compute_ms),
            activation_kib_per_token=float(logit_bytes(module, setup, accounting, setup.pp - 1) / setup.tokens) / KIB,
        ),
        update_ns_per_parameter=UPDATE_BYTES / machine.device.memory_gb_per_s,
        tp=int(setup.tp),
        cp=int(setup.cp),
        stage_ms=machine.timing.micro_batch_ms / setup.vpp,  # of all chunks of a rank together
        by="rates",
    )


def waits(module: Module, setup: Setup, machine: Machine, forward: bool) -> Fit | None:
    """What one layer's ranks wait for each other, of tp, of experts, and of cp; None where there are no others."""
    if setup.tp * setup.cp * setup.ep * setup.etp == 1:
        return None
    fit = layer_fit(module, setup, machine, forward, waits_ms)
    return changed(fit, ms_per_token=fit.ms_per_token + ring_fit(module, setup, machine, forward).ms_per_token)


def layer_kib(module: Module, setup: Setup, accounting: Accounting) -> tuple[float, float]:
    """Per token: what a layer in the mean keeps, and the most that one layer's backward makes again."""
    kept, working, full = 0.0, 0.0, float(setup.full)
    for kind, count in kind_counts(module).items():
        each, only = layer_bytes(module, kind, setup, accounting), input_bytes(module, setup)
        kept += count * float(full * only + (1.0 - full) * each.partly)
        again = float(each.whole - (only if full else each.partly))
        working = max(working, again + float(gathered_input(module, setup)) if again > 0 else 0.0)
    return kept / module.layers / KIB, working / KIB


def exposed(module: Module, setup: Setup, machine: Machine) -> Exposed:
    """What a step of equal micro-batches waits for beside its passes, as the closed form has it."""
    middle = stages(module, setup, machine).middle
    rest = unhidden(module, setup, machine, (middle.forward.seconds, middle.backward.seconds))
    times = setup.micro_batches * setup.vpp if setup.zero == 3 else 1.0  # each chunk's gradients in each micro-batch
    send = stage_send(module, setup, machine) * machine.timing.pp_exposed
    once = update(module, setup, machine) + step_seconds(module, setup, machine).overhead
    return Exposed(
        send_us_per_token=float(send / (setup.micro_batch * setup.seq)) / US,
        exchange_ms=float(rest / times) / MS,
        update_ms=float(once) / MS,
    )
