"""Other placements of encoders at the degrees that they have, as changes that `why-not` takes."""

from collections.abc import Iterator, Mapping

from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks
from planner.specs.inputs import Inputs

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
    """An encoder on the ranks of one replica of the module of the samples, which has the others."""
    size, reader = inputs.cluster.size, layouts[inputs.module]
    one, own = reader.tp * reader.cp * reader.pp * reader.replica, layouts[name]
    whole = len(reader.ranks) == size
    if whole and reader.dp > 1 and one % (own.tp * own.cp * own.pp * own.replica) == 0:
        words = (f"{name}.ranks={Ranks(range(one))}", f"{inputs.module}.ranks={Ranks(range(one, size))}")
        yield f"{name} on {one} ranks of its own", words
