"""Arguments and options that several verbs share, each with one wording."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.complete import job_names, model_names
from planner.errors import InputError
from planner.specs.base import Ranks
from planner.units import seconds_in

Job = Annotated[str, typer.Argument(help="A job file, or the name of a shipped job.", autocompletion=job_names)]
ModelName = Annotated[str, typer.Argument(help="A shipped model, or a model file.", autocompletion=model_names)]
PlanFile = Annotated[Path, typer.Argument(help="A plan file.")]
TraceRanks = Annotated[
    str | None, typer.Option(help="Ranks that the trace shows, like 0-7,16; else all, or of over 64 one of each kind.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; text for people goes to stderr.")]
Seed = Annotated[int, typer.Option(help="Of sampled lengths and synthetic data.", min=0)]
Effort = Annotated[int, typer.Option(help="1 (quick) to 4 (thorough); counted in work, not in seconds.", min=1, max=4)]


class ScheduleName(str, Enum):
    constant = "constant"
    cosine = "cosine"
    linear = "linear"


CONSTANT = ScheduleName.constant


class DtypeName(str, Enum):
    bf16 = "bf16"
    float32 = "float32"
    float64 = "float64"


Dtype = Annotated[DtypeName | None, typer.Option(help="Instead of the plan's, or the machine's usual one.")]


def given_ranks(text: str | None, size: int) -> Ranks | None:
    """Ranks of a job of this size, or none given. Raises InputError."""
    if text is None:
        return None
    try:
        ranks = Ranks(Ranks.from_file(text))
    except ValueError as error:
        what, _, fix = str(error).partition(" | ")
        raise InputError(what, where="--trace-ranks", fix=fix) from error
    if ranks[-1] >= size:
        raise InputError(f"there is no rank {ranks[-1]}", where="--trace-ranks", fix=f"ranks are 0 to {size - 1}")
    return ranks


def given_seconds(text: str | None) -> float | None:
    """A duration such as `10m`, or none given. Raises InputError."""
    if text is None:
        return None
    try:
        return seconds_in(text)
    except ValueError as error:
        raise InputError(str(error), where="--max-time", fix="such as 90s, 10m or 1h30m") from error
