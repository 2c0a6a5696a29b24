"""Forty changes of a case, from the hardest to the plainest, each with the label that whoever reads it gives it.

A label says whom to ask. `slower plan`: the same work takes longer, by the planner or by what its job asks. `changed
input`: the work is another (model, data, cluster), or the job asks something else that costs nothing. `both`. `stale`:
files changed, and nothing that a plan rests on. `illegal`: the stored plan cannot be what it says. `equal`: as good as
before.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from planner import files
from planner.costs.machine_model import MachineModel
from planner.errors import Infeasible
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.library import shipped_folder
from planner.strategies import sequence_groups
from tests.check.small_plans import one_by_one, with_rows

LENGTHS = (309, 268, 543, 537, 315, 119, 262, 354, 375, 1295, 155, 581, 1249, 464, 1102, 96)
GROUPS = """\
format: planner.job/1
name: groups
model: ./model.yaml
cluster: ./cluster.yaml
profile: cpu
software: ./software.yaml
strategy: sequence_groups
workload: {lengths: {from: file, path: lengths.txt}, batch_rows: 16, max_tokens: 4096}
layout: {zero: 3, dtype: float32}
degrees: [1, 2]
limits: {tokens_per_rank: 1600}
"""
STATIC = """\
format: planner.job/1
name: static
model: llama-3-8b
cluster: ./cluster.yaml
profile: h100-80gb
software: ./software.yaml
strategy: parallel_search
layout: {zero: 1}
workload: {lengths: {from: mix, parts: [{weight: 1, median: 4096, sigma: 0}]}, batch_rows: 16, max_tokens: 8192}
"""
CPUS = """\
format: planner.cluster/1
name: cpus
source: made up
ranks: [{kind: cpu, count: 4, per_node: 4, usd_per_hour: 0.1}]
levels: [{name: machine, ranks: 4, gb_per_s: 1.0, latency_us: 200}]
"""
H100S = """\
format: planner.cluster/1
name: h100s
source: made up
ranks: [{kind: h100-80gb, count: 8, per_node: 4}]
levels:
  - {name: node, ranks: 4, gb_per_s: 450, latency_us: 6.5}
  - {name: cluster, ranks: 8, gb_per_s: 50, latency_us: 15}
"""


def write_case(folder: Path, base: str) -> None:
    """The files of a base: `groups`, `dollars` (the same, for money) or `static`."""
    folder.mkdir(parents=True)
    shipped = shipped_folder()
    job = STATIC if base == "static" else GROUPS
    write(folder, "job.yaml", job + ("objective: dollars\n" if base == "dollars" else ""))
    write(folder, "cluster.yaml", H100S if base == "static" else CPUS)
    write(folder, "model.yaml", (shipped / "models/tiny-decoder.yaml").read_text("utf-8"))
    write(folder, "software.yaml", (shipped / "software/planner.yaml").read_text("utf-8"))
    write(folder, "lengths.txt", "".join(f"{each}\n" for each in LENGTHS))


# ---------------------------------------------------------------------------------------------------- how to change

Patch = pytest.MonkeyPatch
Change = Callable[[Path, Patch], None]


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def edit(name: str, before: str, after: str) -> Change:
    """A text of a file is another."""

    def change(folder: Path, patch: Patch) -> None:
        text = (folder / name).read_text("utf-8")
        assert text.count(before) >= 1, (name, before)
        write(folder, name, text.replace(before, after, 1))

    return change


def add(name: str, line: str) -> Change:
    def change(folder: Path, patch: Patch) -> None:
        write(folder, name, f"{(folder / name).read_text('utf-8').rstrip()}\n{line}\n")

    return change


def lengths(of: Callable[[int, int], int]) -> Change:
    """Every document is as long as a function of its number and length."""

    def change(folder: Path, patch: Patch) -> None:
        write(folder, "lengths.txt", "".join(f"{of(*each)}\n" for each in enumerate(LENGTHS)))

    return change


def dearer(factor: float) -> Change:
    """The code prices everything so many times as dear: of the function by which steps of more ranks are longer."""

    def change(folder: Path, patch: Patch) -> None:
        usual = MachineModel.jitter
        patch.setattr(MachineModel, "jitter", lambda machine, ranks: (1 + usual(machine, ranks)) * factor - 1)

    return change


def worse_search(folder: Path, patch: Patch) -> None:
    """The code's strategy gives each document a micro-batch of its own."""
    usual = sequence_groups.plan
    patch.setattr(sequence_groups, "plan", lambda inputs, base: one_by_one(usual(inputs, base)))


def no_search(folder: Path, patch: Patch) -> None:
    def refuses(inputs, base):
        raise Infeasible("nothing fits", where="limits", fix="more memory")

    patch.setattr(sequence_groups, "plan", refuses)


def plan(of: Callable[[Plan], Plan]) -> Change:
    """The stored plan is edited."""

    def change(folder: Path, patch: Patch) -> None:
        path = folder / "plan.yaml"
        files.write(path, of(files.read(path, Plan)))

    return change


def outcome(**factors: float) -> Change:
    def of(stored: Plan) -> Plan:
        fields = {name: getattr(stored.outcome, name) * factor for name, factor in factors.items()}
        return with_fields(stored, outcome=with_fields(stored.outcome, **fields))

    return plan(of)


def moved(stored: Plan) -> Plan:
    """Two documents change places, and the plan states what it did."""
    rows = [{name: list(items) for name, items in row.items()} for row in stored.steps[0].micro_batches]
    slots = [(row, name, at) for row in rows for name, items in row.items() for at in range(len(items))]
    size = stored.uses.items["llm"]
    slots.sort(key=lambda slot: size[slot[0][slot[1]][slot[2]]])
    (a, one, i), (b, other, j) = slots[0], next(slot for slot in slots[4:] if slot[0] is not slots[0][0])
    a[one][i], b[other][j] = b[other][j], a[one][i]
    return with_rows(stored, tuple({name: tuple(items) for name, items in row.items()} for row in rows))


def twice(stored: Plan) -> Plan:
    """A document is trained twice."""
    rows = stored.steps[0].micro_batches
    item = next(iter(rows[0].values()))[0]
    name = next(iter(rows[-1]))
    return with_rows(stored, (*rows[:-1], {**rows[-1], name: (*rows[-1][name], item)}))


def renamed(stored: Plan) -> Plan:
    """Groups have other names."""
    names = {name: f"team-{number}" for number, name in enumerate(stored.groups)}
    rows = tuple({names[n]: row[n] for n in row} for row in stored.steps[0].micro_batches)
    return with_fields(with_rows(stored, rows), groups={names[name]: group for name, group in stored.groups.items()})


def older(stored: Plan) -> Plan:
    return with_fields(stored, made=with_fields(stored.made, by="planner 0.0.9"))


# ------------------------------------------------------------------------------------------------------ the changes


class Mutation(NamedTuple):
    """A change of a base case, in words, and its label."""

    what: str
    base: str
    label: str
    changes: tuple[Change, ...]


def longer(factor: float) -> Change:
    return lengths(lambda _, length: round(length * factor))


ONE_DEGREE = edit("job.yaml", "degrees: [1, 2]", "degrees: [4]")
SLOW_LAYOUT = add("job.yaml", "fix: {layouts: {llm: {tp: 8, recompute: full}}}")
SHORTER_STATIC, LONGER_STATIC = (edit("job.yaml", "median: 4096", f"median: {tokens}") for tokens in (2048, 6144))
SLOWER_SOFTWARE = edit("software.yaml", "jitter: 0.00357", "jitter: 0.03")
DEARER_DEVICE = edit("cluster.yaml", "usd_per_hour: 0.1", "usd_per_hour: 0.12")
CHEAPER_DEVICE = edit("cluster.yaml", "usd_per_hour: 0.1", "usd_per_hour: 0.08")

MUTATIONS = (
    Mutation("shorter documents hide a layout that is slower", "static", "both", (SHORTER_STATIC, SLOW_LAYOUT)),
    Mutation("shorter documents hide dearer code", "groups", "both", (longer(0.7), dearer(1.05))),
    Mutation("a cheaper device hides dearer code", "dollars", "both", (CHEAPER_DEVICE, dearer(1.05))),
    Mutation(
        "a renamed cluster is no excuse for a layout",
        "static",
        "slower plan",
        (edit("cluster.yaml", "name: h100s", "name: theirs"), SLOW_LAYOUT),
    ),
    Mutation(
        "a comment is no excuse for dearer code", "groups", "slower plan", (add("job.yaml", "# ours"), dearer(1.05))
    ),
    Mutation(
        "one token more hides the one degree that is left",
        "groups",
        "both",
        (lengths(lambda number, length: length + (number == 3)), ONE_DEGREE),
    ),
    Mutation(
        "code and software, each within what is tolerated",
        "static",
        "slower plan",
        (edit("software.yaml", "jitter: 0.00357", "jitter: 0.018"), dearer(1.015)),
    ),
    Mutation(
        "another model hides a worse search",
        "groups",
        "both",
        (edit("model.yaml", "layers: 4", "layers: 5"), worse_search),
    ),
    Mutation(
        "a faster network hides slower software",
        "static",
        "both",
        (edit("cluster.yaml", "gb_per_s: 50", "gb_per_s: 400"), SLOWER_SOFTWARE),
    ),
    Mutation("an edited plan under dearer code", "groups", "illegal", (plan(moved), dearer(1.05))),
    Mutation("an edited plan beside other data", "groups", "illegal", (longer(1.1), plan(moved))),
    Mutation(
        "a plan that trains a document twice, under dearer code", "groups", "illegal", (plan(twice), dearer(1.05))
    ),
    Mutation("a plan that states half of what it takes", "groups", "illegal", (outcome(value=0.5),)),
    Mutation("a plan that states twice what it takes", "dollars", "illegal", (outcome(value=2.0),)),
    Mutation("a plan whose gap is not that of its bound", "groups", "illegal", (outcome(gap=0.5),)),
    Mutation("a plan whose bound over layouts was edited", "static", "illegal", (outcome(bound=0.99),)),
    Mutation("decisions edited without saying so", "groups", "illegal", (plan(moved),)),
    Mutation("dearer code", "groups", "slower plan", (dearer(1.05),)),
    Mutation("dearer code, of a static layout", "static", "slower plan", (dearer(1.05),)),
    Mutation("dearer code, for money", "dollars", "slower plan", (dearer(1.05),)),
    Mutation("code dearer by less than is tolerated", "groups", "equal", (dearer(1.01),)),
    Mutation("a worse search", "groups", "slower plan", (worse_search,)),
    Mutation("a search that finds nothing any more", "groups", "slower plan", (no_search,)),
    Mutation("slower software", "static", "slower plan", (SLOWER_SOFTWARE,)),
    Mutation("a layout that is slower", "static", "slower plan", (SLOW_LAYOUT,)),
    Mutation("one degree less", "groups", "slower plan", (ONE_DEGREE,)),
    Mutation(
        "a margin of half the memory", "static", "slower plan", (add("job.yaml", "limits: {memory_margin: 50%}"),)
    ),
    Mutation("longer documents", "static", "changed input", (LONGER_STATIC,)),
    Mutation("longer documents, in groups", "groups", "changed input", (longer(1.2),)),
    Mutation("half the batch", "groups", "changed input", (edit("job.yaml", "batch_rows: 16", "batch_rows: 8"),)),
    Mutation(
        "the same documents in another order",
        "groups",
        "changed input",
        (lengths(lambda number, _: LENGTHS[-1 - number]),),
    ),
    Mutation("another layer", "groups", "changed input", (edit("model.yaml", "layers: 4", "layers: 5"),)),
    Mutation("half the network", "groups", "changed input", (edit("cluster.yaml", "gb_per_s: 1.0", "gb_per_s: 0.5"),)),
    Mutation(
        "twice the ranks",
        "groups",
        "changed input",
        (
            edit("cluster.yaml", "count: 4, per_node: 4", "count: 8, per_node: 8"),
            edit("cluster.yaml", "ranks: 4, gb", "ranks: 8, gb"),
        ),
    ),
    Mutation("a dearer device, for money", "dollars", "changed input", (DEARER_DEVICE,)),
    Mutation("a comment in the job", "groups", "stale", (add("job.yaml", "# ours"),)),
    Mutation(
        "another source of the model", "groups", "stale", (edit("model.yaml", "source: made", "source: was made"),)
    ),
    Mutation("a comment in the software", "static", "stale", (add("software.yaml", "# ours"),)),
    Mutation("groups by other names, by an older planner", "groups", "equal", (plan(renamed), plan(older))),
    Mutation("nothing", "static", "equal", ()),
)
