"""Plans with embedding tables that this runtime cannot execute, and options that it does not have for them."""

from collections.abc import Iterator

from planner.errors import InputError
from planner.plan.embeddings import tokens_of_sums
from planner.plan.plan_file import Plan
from planner.runtime.run_options import RunOptions


def table_refusals(plan: Plan, on_gpus: bool) -> Iterator[tuple[str, str, str]]:
    """Message, place and fix of what of embedding tables cannot be run."""
    placed = plan.embeddings
    if placed is None:
        return
    (name, layout), *others = plan.layouts.items()
    if others or layout.dp < plan.size or any(len(group.ranks) > 1 for group in plan.groups.values()):
        fix = "degrees: [1], and a model of one module"
        yield "tables are run beside one module whose samples have a rank each", f"layouts.{name}", fix
    module = plan.uses.models[name]
    if not module.causal or module.output_vocabulary < 2:
        yield "clicks are two words of a decoder", f"uses.models.{name}", "kind: decoder, vocab: 2"
    tokens = tokens_of_sums(plan.uses.tables, module.hidden)
    for item in plan.uses.items[name]:
        if plan.uses.tokens(name, item) <= tokens:
            message = f"sums of the tables take the place of {tokens} tokens, and item {item} has no more"
            yield message, f"uses.items.{name}.{item}", f"samples of {tokens + 1} tokens at least"
    for name, table in plan.uses.tables.items():
        if table.dtype != "fp32" or table.optimizer == "adam":
            fix = "dtype: fp32, and one of these"
            yield "tables are trained in fp32, by rowwise_adagrad, adagrad or sgd", f"uses.tables.{name}", fix
        if placed.tables[name].cache and on_gpus:
            yield "rows in host memory cannot be run on GPUs yet", f"embeddings.tables.{name}.cache", "no cache"


def require_plain_run(plan: Plan, options: RunOptions) -> None:
    """Raises InputError for options that a run with embedding tables does not have."""
    placed = plan.embeddings
    if placed is None:
        return
    given = {"data": options.data, "save": options.save, "resume": options.resume, "clip": options.training.clip}
    for name, value in given.items():
        if value is not None:
            raise InputError(f"runs with embedding tables have no --{name} yet", where=f"--{name}", fix="leave it out")
    if options.verify and placed.groups > 1 and placed.average_every > 1:
        message = f"copies of tables that are averaged every {placed.average_every} steps differ from one process"
        raise InputError(message, where="--verify", fix="average_every: 1, or groups: 1")
