"""Other placements of encoders at the degrees that they have, as changes that `why-not` takes."""

from collections.abc import Iterator, Mapping

from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks
from planner.specs.inputs import Inputs
from planner.specs.parameters import parameter_counts
from planner.specs.workload.items import item_tokens

Words = tuple[str, ...]


def other_placements(inputs: Inputs, layouts: Mapping[str, Layout]) -> Iterator[tuple[str, Words]]:
    """Each encoder on the first stage of who reads it, on all ranks, or on ranks of its own, where it is not: what is
    another, and its words.
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
    size, reader, own = inputs.cluster.size, layouts[inputs.module], layouts[name]
    replicas = max(1, min(reader.dp - 1, round(work_share(inputs, name) * reader.dp)))
    count = replicas * reader.tp * reader.cp * reader.pp * reader.replica
    whole = len(reader.ranks) == size
    if whole and reader.dp > 1 and count % (own.tp * own.cp * own.pp * own.replica) == 0:
        words = (f"{name}.ranks={Ranks(range(count))}", f"{inputs.module}.ranks={Ranks(range(count, size))}")
        yield f"{name} on {count} ranks of its own", words


def work_share(inputs: Inputs, name: str) -> float:
    """The share of a module in the work of a batch, by tokens times parameters."""
    work = {
        each: parameter_counts(module).total * batch_tokens(inputs, each)
        for each, module in inputs.model.modules.items()
    }
    return work[name] / max(1, sum(work.values()))


def batch_tokens(inputs: Inputs, name: str) -> int:
    """The tokens of a module in a batch."""
    (batch, *_) = inputs.batches
    sizes = batch.items if name == inputs.module else batch.streams.get(name, {})
    return sum(map(item_tokens, sizes.values()))
