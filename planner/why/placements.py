"""What encoders elsewhere would save a step of several modules, its items placed again: on other ranks at the degrees
that they have, or in packs of another size, as changes that `why-not` takes.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from planner.errors import InputError
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout, Plan
from planner.specs.base import Ranks, Spec
from planner.specs.inputs import Inputs
from planner.specs.parameters import parameter_counts
from planner.specs.workload.items import item_tokens
from planner.strategies.static import unsupported_together
from planner.why.apply_changes import apply_module_changes
from planner.why.kept_layouts import kept_plan, placed_again
from planner.why.plan_problem import plan_inputs
from planner.why.resolved import Infeasibility, Sensitivity, Solved, gain_of, solved

Words = tuple[str, ...]


class PlacementGain(Spec, omit_defaults=False):
    """An encoder elsewhere: `changes` are what `why-not` takes."""

    changes: tuple[str, ...]
    gain: Sensitivity


def problem_placed_again(step: Plan) -> tuple[tuple[Inputs, Solved] | None, str]:
    """The problem of a step, and its own layouts as a plan; or None, and why there is none."""
    try:
        inputs = plan_inputs(step)
        unable = unsupported_together(inputs)
    except InputError as error:
        return None, error.message
    if unable:
        return None, unable.partition(" | ")[0]
    again = solved(partial(placed_again, inputs, step, step.layouts))
    return (None, again.message) if isinstance(again, Infeasibility) else ((inputs, again), "")


def placement_gains(inputs: Inputs, step: Plan, before: float) -> Iterator[PlacementGain]:
    """What each other placement of an encoder saves, with all other layouts as they were."""
    for what, words in other_placements(inputs, step.layouts):
        change = apply_module_changes(inputs, words)
        yield PlacementGain(changes=words, gain=gain_of(what, solved(partial(kept_plan, change, step)), before))


def pack_gains(inputs: Inputs, step: Plan, before: float) -> Iterator[Sensitivity]:
    """Other budgets of packs, where samples are packed."""
    for name, most in inputs.job.limits.inputs_per_rank.items():
        change = apply_module_changes(inputs, (f"{name}.inputs_per_rank={2 * most}",))
        what = f"{name}: packs of twice the size ({name}.inputs_per_rank={2 * most})"
        yield gain_of(what, solved(partial(kept_plan, change, step)), before)


def other_placements(inputs: Inputs, layouts: Mapping[str, Layout]) -> Iterator[tuple[str, Words]]:
    """What differs, and its words: each encoder on the first stage of who reads it, on all ranks, and on ranks of its
    own, where it is not there already.
    """
    every = Ranks(range(inputs.cluster.size))
    for name, layout in layouts.items():
        readers = inputs.model.targets(name)
        first = {stage_ranks(layouts[reader], 0) for reader in readers}
        if len(first) == 1 and {layout.ranks, every}.isdisjoint(first):
            yield f"{name} on the first stage of {' and '.join(readers)}", (f"{name}.ranks=first_stage",)
        if readers and layout.ranks != every:
            yield f"{name} on all ranks", (f"{name}.ranks={every}",)
        if readers:
            yield from apart(inputs, name, layouts)


def apart(inputs: Inputs, name: str, layouts: Mapping[str, Layout]) -> Iterator[tuple[str, Words]]:
    """An encoder on the ranks of as many replicas of the module of the samples as it has of the work, one at least;
    that module has the others.
    """
    size, reader, encoder = inputs.cluster.size, layouts[inputs.module], layouts[name]
    replicas = max(1, min(reader.dp - 1, round(work_share(inputs, name) * reader.dp)))
    count = replicas * reader.tp * reader.cp * reader.pp * reader.replica
    whole = len(reader.ranks) == size
    if whole and reader.dp > 1 and count % (encoder.tp * encoder.cp * encoder.pp * encoder.replica) == 0:
        words = (f"{name}.ranks={Ranks(range(count))}", f"{inputs.module}.ranks={Ranks(range(count, size))}")
        yield f"{name} on {count} ranks of its own", words


def work_share(inputs: Inputs, name: str) -> float:
    """The share of a module in the work of a batch, by tokens times parameters."""
    work = {
        of: parameter_counts(module).total * batch_tokens(inputs, of) for of, module in inputs.model.modules.items()
    }
    return work[name] / max(1, sum(work.values()))


def batch_tokens(inputs: Inputs, name: str) -> int:
    """The tokens of a module's items in the batch: of samples, or of an encoder's stream."""
    (batch, *_) = inputs.batches
    sizes = batch.items if name == inputs.module else batch.streams.get(name, {})
    return sum(map(item_tokens, sizes.values()))
