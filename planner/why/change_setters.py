"""The keys that `why-not` can change, one function each: from inputs, key and value to changed inputs."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, get_args

from planner import files
from planner.errors import InputError
from planner.specs.base import MAX_RANKS, Name, Spec, share_of, with_fields
from planner.specs.inputs import Inputs, require_possible_groups
from planner.specs.job import FixedItem, Job
from planner.specs.parallelism import (
    RECOMPUTED_PARTS,
    Dispatch,
    Dtype,
    Parallelism,
    Recompute,
    RecomputeName,
    Schedule,
    Sync,
    decided_fields,
    recompute_of,
)
from planner.specs.tables import Replicas
from planner.strategies import STRATEGIES, decides_layouts, strategy_deciding
from planner.units import first_few
from planner.why.resize_cluster import only_kind, with_ranks

ITEM = re.compile(r"items\.(\d{1,9})\.degree")
ApplyKey = Callable[[Inputs, str, str], Inputs]  # inputs, key, value


def fix_item(inputs: Inputs, key: str, value: str) -> Inputs:
    match = ITEM.fullmatch(key)
    if not match:
        raise InputError(f"an item has no `{key}`", where=key, fix="write items.N.degree")
    item = int(match[1])
    (batch,) = inputs.batches
    if item not in batch.items:
        raise InputError(f"the step has no item {item}", where=key, fix=f"one of {first_few(sorted(batch.items))}")
    fixed = {**inputs.job.fix.items, item: FixedItem(degree=whole_number(value, key, inputs.cluster.size))}
    return change_job(inputs, fix=with_fields(inputs.job.fix, items=dict(sorted(fixed.items()))))


def set_degrees(inputs: Inputs, key: str, value: str) -> Inputs:
    return change_job(
        inputs, degrees=tuple(sorted({whole_number(part, key, inputs.cluster.size) for part in value.split(",")}))
    )


def set_limit(inputs: Inputs, key: str, value: str) -> Inputs:
    """Set the token limit per rank; `none` leaves the limit to memory."""
    limit = None if value == "none" else whole_number(value, key, 10**9)
    return change_job(inputs, limits=with_fields(inputs.job.limits, tokens_per_rank=limit))


def set_margin(inputs: Inputs, key: str, value: str) -> Inputs:
    if inputs.job.limits.tokens_per_rank is not None:
        message = "the plan's memory is limited in tokens, so its margin changes nothing"
        raise InputError(message, where=key, fix="add tokens_per_rank=none, or change tokens_per_rank instead")
    return change_job(inputs, limits=with_fields(inputs.job.limits, memory_margin=share_of(value, key)))


def set_zero(inputs: Inputs, key: str, value: str) -> Inputs:
    return change_layout(inputs, zero=int(one_of(value, key, ("0", "1", "2", "3"))))


def set_sync(inputs: Inputs, key: str, value: str) -> Inputs:
    return change_job(inputs, sync=one_of(value, key, get_args(Sync)))


def set_strategy(inputs: Inputs, key: str, value: str) -> Inputs:
    return change_job(inputs, strategy=one_of(value, key, tuple(STRATEGIES)))


def set_recompute(inputs: Inputs, key: str, value: str) -> Inputs:
    """Change recompute to a name, to parts like `norm,mlp`, or to ranges of layers as in jobs; measured costs with it
    stay, others are dropped.
    """
    if value[:1] == "{":
        return set_as_in_jobs(inputs, key, value)
    names = get_args(RecomputeName)
    parts = [one_of(part, key, (*names, *RECOMPUTED_PARTS)) for part in value.split(",")]
    how: Recompute = parts[0] if value in names else recompute_of(one_of(part, key, RECOMPUTED_PARTS) for part in parts)
    if measured_with(inputs, how):
        return change_layout(inputs, recompute=how)
    return change_and_reprice(inputs, key, recompute=how)


def measured_with(inputs: Inputs, how: Recompute) -> bool:
    """Whether the module was measured with this recompute."""
    known = inputs.profile.modules.values()
    return bool(known) and all(costs.recomputing and (how == "none" or how in costs.recomputing) for costs in known)


def set_dtype(inputs: Inputs, key: str, value: str) -> Inputs:
    return change_and_reprice(inputs, key, dtype=one_of(value, key, get_args(Dtype)))


def set_ranks(inputs: Inputs, key: str, value: str) -> Inputs:
    only_kind(inputs.cluster, key)
    return with_ranks(inputs, 0, whole_number(value, key, MAX_RANKS))


def set_nodes(inputs: Inputs, key: str, value: str) -> Inputs:
    per_node = only_kind(inputs.cluster, key).per_node
    return with_ranks(inputs, 0, whole_number(value, key, MAX_RANKS // per_node) * per_node)


def set_effort(inputs: Inputs, key: str, value: str) -> Inputs:
    return replace(inputs, effort=whole_number(value, key, 4))


def set_tables(inputs: Inputs, key: str, value: str) -> Inputs:
    """Fix in how many groups of ranks embedding tables are, where their copies are, or when these are averaged."""
    if inputs.job.tables is None:
        raise InputError("the plan has no embedding tables", where=key, fix="ask about a plan that has")
    wish = one_of(value, key, get_args(Replicas)) if key == "replicas" else whole_number(value, key, MAX_RANKS)
    asked = with_fields(inputs.job.tables, **{key: wish})
    require_possible_groups(asked, inputs.cluster, key)
    return change_job(inputs, tables=asked)


def set_layout_count(inputs: Inputs, key: str, value: str) -> Inputs:
    """Fix a degree, or the size of a micro-batch, of a static layout."""
    return search_layouts(change_layout(inputs, **{key: whole_number(value, key, MAX_RANKS)}))


def set_schedule(inputs: Inputs, key: str, value: str) -> Inputs:
    return search_layouts(change_layout(inputs, schedule=one_of(value, key, get_args(Schedule))))


def set_dispatch(inputs: Inputs, key: str, value: str) -> Inputs:
    return search_layouts(change_layout(inputs, dispatch=one_of(value, key, get_args(Dispatch))))


def set_offload(inputs: Inputs, key: str, value: str) -> Inputs:
    """Fix the share of activations, or of the optimizer's moments, in host memory, none at all as `none`; or kinds of
    activations, as `[attention,norm]`.
    """
    if key == "offload" and value[:1] == "[":
        return set_as_in_jobs(inputs, key, value)
    return search_layouts(change_layout(inputs, **{key: 0.0 if value == "none" else share_of(value, key)}))


def set_as_in_jobs(inputs: Inputs, key: str, value: str) -> Inputs:
    """Fix a field in a job's own words, as `stages=[0-10,11-22]` or `overlap=[tp]`; as many stages are a pipeline of as
    many ranks, unless pp and vpp are changed too.
    """
    wish = decided_fields(parsed_wish(inputs.module, key, value, f"{key}={value}"))
    pipeline = {"pp": len(wish["stages"]), "vpp": 1} if "stages" in wish else {}
    return search_layouts(change_layout(inputs, **pipeline, **wish))


class Words(Spec):
    """Changes as a file, so that they are read as strictly as a job's `fix.layouts`."""

    FORMAT: ClassVar[str] = "planner.changes/1"
    format: str
    layouts: dict[Name, Parallelism]


def parsed_wish(module: str, field: str, value: str, word: str) -> Parallelism:
    """A field of a module's layout, or all of it, as a job says it. Raises InputError."""
    if field == "recompute" and "," in value and value[0] not in "[{":
        value = f"[{value}]"
    lines = f"{module}: {value}" if not field else f"{module}:\n    {field}: {value}"
    text = f"format: {Words.FORMAT}\nlayouts:\n  {lines}\n"
    try:
        wish = files.parse(text, Words, word).layouts[module]
    except InputError as error:
        raise InputError(error.message, where=word, fix=error.fix) from error
    if not decided_fields(wish):
        raise InputError(f"`{word}` changes nothing", where=word, fix="give a value")
    return wish


def search_layouts(inputs: Inputs) -> Inputs:
    """The inputs with a strategy that decides a static layout: groups that change have no such fields."""
    if decides_layouts(inputs.job.strategy):
        return inputs
    return change_job(inputs, strategy=strategy_deciding("layouts", len(inputs.model.modules)))


LAYOUT_COUNTS = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "dp", "replica", "micro_batch")
IN_WORDS_OF_JOBS = ("stages", "overlap", "rank_order", "sequence_parallel", "gradients")
SETTERS: dict[str, ApplyKey] = {
    "degrees": set_degrees,
    "strategy": set_strategy,
    "sync": set_sync,
    "zero": set_zero,
    "recompute": set_recompute,
    "dtype": set_dtype,
    "tokens_per_rank": set_limit,
    "memory_margin": set_margin,
    "ranks": set_ranks,
    "nodes": set_nodes,
    "effort": set_effort,
    **dict.fromkeys(("groups", "replicas", "average_every"), set_tables),
    **dict.fromkeys(LAYOUT_COUNTS, set_layout_count),
    "schedule": set_schedule,
    "dispatch": set_dispatch,
    "offload": set_offload,
    "optimizer_offload": set_offload,
    **dict.fromkeys(IN_WORDS_OF_JOBS, set_as_in_jobs),
}


def change_job(inputs: Inputs, **fields: Any) -> Inputs:
    job: Job = with_fields(inputs.job, **fields)
    return replace(inputs, job=job)


def change_layout(inputs: Inputs, **wish: Any) -> Inputs:
    """The inputs with these fields of the layout, which override what the job fixed."""
    fix, gone = inputs.job.fix, {key: None for key in wish if key in Parallelism.__struct_fields__}
    layouts = {name: with_fields(fixed, **gone) for name, fixed in fix.layouts.items()}
    return change_job(inputs, layout=with_fields(inputs.job.layout, **wish), fix=with_fields(fix, layouts=layouts))


def change_and_reprice(inputs: Inputs, key: str, **wish: Any) -> Inputs:
    """Change the layout where measured or published costs do not apply, and price by shape. Raises InputError."""
    asked = change_layout(inputs, **wish)
    if asked.job == inputs.job:
        return inputs
    sources = sorted({costs.source for costs in inputs.profile.modules.values()})
    if sources:
        again = "again " if "fitted" in sources else ""
        how = f"measure it {again}(planner profile)" if "recompute" in wish else "profile the model that way"
        raise InputError(
            f"the plan's costs of `{inputs.module}` are {' and '.join(sources)}, and are not known for another {key}",
            where=key,
            fix=f"{how} and solve its job with that profile",
        )
    return replace(asked, profile=with_fields(inputs.profile, modules={}))


def whole_number(value: str, key: str, most: int) -> int:
    text = value.strip()
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:
        raise InputError(f"`{value}` is not possible for `{key}`", where=key, fix=f"a whole number from 1 to {most}")
    return int(text)


def one_of(value: str, key: str, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        raise InputError(f"`{value}` is not possible for `{key}`", where=key, fix=f"one of {', '.join(allowed)}")
    return value
