"""Arguments and options that several verbs share, each with one wording."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.complete import job_names, model_names

Job = Annotated[str, typer.Argument(help="A job file, or the name of a shipped job.", autocompletion=job_names)]
ModelName = Annotated[str, typer.Argument(help="A shipped model, or a model file.", autocompletion=model_names)]
PlanFile = Annotated[Path, typer.Argument(help="A plan file.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; text for people goes to stderr.")]
Seed = Annotated[int, typer.Option(help="Of sampled lengths and synthetic data.", min=0)]
Effort = Annotated[int, typer.Option(help="1 (quick) to 4 (thorough); counted in work, not in seconds.", min=1, max=4)]


class DtypeName(str, Enum):
    bf16 = "bf16"
    float32 = "float32"
    float64 = "float64"


Dtype = Annotated[DtypeName | None, typer.Option(help="Instead of the plan's, or the machine's usual one.")]
