"""Counts of tokens per expert, as a job gives them: where routing was counted, its prices need not assume it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from planner import files
from planner.errors import InputError
from planner.specs.base import Amount, Name, Spec, with_fields
from planner.specs.model import Model

CountedTokens = tuple[tuple[Amount, ...], ...]


class CountsFile(Spec, tag_field="from", tag="file"):
    """A CSV without a header: a row for each layer or step that was counted, a column for each expert; `.gz` is
    unpacked.
    """

    path: str  # relative to the job's file


ExpertCounts = CountsFile | CountedTokens


def with_expert_counts(model: Model, counts: Mapping[Name, ExpertCounts], path: Path) -> Model:
    """The model with a job's counts in its modules. `path`: the job's file. Raises InputError."""
    modules = dict(model.modules)
    for name, given in counts.items():
        where = f"{path} (expert_counts.{name})"
        module = modules.get(name)
        if module is None or module.routed_experts is None:
            experts = [each for each, shape in model.modules.items() if shape.routed_experts]
            fix = f"name one of {', '.join(experts)}" if experts else "leave `expert_counts` out"
            raise InputError(f"no module `{name}` has experts", where=where, fix=fix)
        counted = read_counts(path.parent / given.path) if isinstance(given, CountsFile) else given
        where = f"{path.parent / given.path}" if isinstance(given, CountsFile) else where
        try:
            modules[name] = with_fields(module, moe=with_fields(module.routed_experts, counts=counted))
        except InputError as error:
            raise InputError(error.message, where=where, fix=error.fix) from error
    return with_fields(model, modules=modules)


def read_counts(path: Path) -> CountedTokens:
    """The counts of a CSV: a row for each layer or step, a number for each expert. Raises InputError."""
    counts: list[tuple[float, ...]] = []
    for line, cells in files.read_csv(path):
        where = f"{path}:{line}"
        try:
            counts.append(msgspec.convert(tuple(map(float, cells)), tuple[Amount, ...]))
        except (ValueError, msgspec.ValidationError) as error:
            message = f"`{','.join(cells)[:60]}` is no row of counts"
            raise InputError(message, where=where, fix="write numbers from 0 on, with commas between them") from error
    return tuple(filter(None, counts))
