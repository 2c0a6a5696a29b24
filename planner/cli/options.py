"""Arguments and options that several verbs share, and shell completion of the names of what is shipped."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.errors import InputError
from planner.specs.base import Ranks
from planner.specs.job import MOST_WITHIN
from planner.units import parse_duration, parse_share

# Lists of which names stand in the code.
TABLES = ("lengths", "families", "images", "audio", "strategies", "orders", "places", "teachers")
HF, TORCHREC = "hf", "torchrec"  # the formats of models and of embedding tables, beside those of the tables
DOES_NOT_FIT = 3  # exit code, as for any infeasible job
ILLEGAL = 2  # exit code, as for any wrong input


def names(kind: str, incomplete: str) -> list[str]:
    """Names of a list that begin with what was typed."""
    known = table_names(kind) if kind in TABLES else [path.stem for path in shipped_files(kind)]
    return sorted(name for name in known if name.startswith(incomplete))


def shipped_files(kind: str) -> list[Path]:
    """The shipped files of a kind."""
    from planner.specs.library import shipped_folder

    return [*(shipped_folder() / kind).glob("*.yaml")]


def table_names(kind: str) -> list[str]:
    """The names in the table of a kind."""
    if kind == "lengths":
        from planner.specs.workload.distributions import DISTRIBUTIONS

        return [*DISTRIBUTIONS]
    if kind == "families":
        from planner.hf import FAMILIES

        return [*FAMILIES]
    if kind in ("images", "audio"):
        from planner.specs.workload.sample_mix import CLIPS, IMAGES

        return [*(IMAGES if kind == "images" else CLIPS)]
    if kind in ("orders", "places", "teachers"):
        from planner.policies import PLACE_NAMES, TEACHERS, policy_names

        return [*(policy_names() if kind == "orders" else PLACE_NAMES if kind == "places" else TEACHERS)]
    from planner.strategies import BEST, STRATEGIES

    return [*STRATEGIES, BEST]


def job_names(incomplete: str) -> list[str]:
    return names("jobs", incomplete) + [str(path) for path in Path().glob(f"{incomplete}*.yaml")]


def model_names(incomplete: str) -> list[str]:
    return names("models", incomplete)


def counted_devices(incomplete: str) -> list[str]:
    """Numbers of GPUs, of which the last has the beginning of its device's name: 64xh100,512xa1."""
    before, counted, device = incomplete.rpartition("x")
    return [f"{before}x{name}" for name in names("devices", device)] if counted and before[-1:].isdigit() else []


def cluster_names(incomplete: str) -> list[str]:
    return names("clusters", incomplete)


def software_names(incomplete: str) -> list[str]:
    return ["any"] * "any".startswith(incomplete) + names("software", incomplete)


def length_names(incomplete: str) -> list[str]:
    return names("lengths", incomplete)


def image_names(incomplete: str) -> list[str]:
    return names("images", incomplete)


def audio_names(incomplete: str) -> list[str]:
    return names("audio", incomplete)


def order_names(incomplete: str) -> list[str]:
    return names("orders", incomplete)


def place_names(incomplete: str) -> list[str]:
    return names("places", incomplete)


def teacher_names(incomplete: str) -> list[str]:
    return names("teachers", incomplete)


def export_names(incomplete: str) -> list[str]:
    from planner.export import export_formats

    return [name for name in export_formats() if name.startswith(incomplete)]


def target_names() -> list[str]:
    """The programs whose launch files are read."""
    from planner.targets import TARGETS

    return [*TARGETS]


def import_names(incomplete: str) -> list[str]:
    from planner.export import ORDER_READERS

    return [name for name in (*target_names(), *ORDER_READERS, HF, TORCHREC) if name.startswith(incomplete)]


def written(*names: str, help: str) -> Any:
    """An option that names a file to write."""
    return typer.Option(*names, help=help, callback=require_written)


def require_written(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Raises InputError, before the verb begins, where the file that an option names cannot be written."""
    if path is not None and str(path) != "-":
        from planner.files import require_writable

        require_writable(path, option.opts[0])
    return path


Build = Annotated[
    bool,
    typer.Option("--build", help="Build the config.json's model by transformers, of whatever kind, and describe it."),
]
Mtp = Annotated[
    bool,
    typer.Option("--mtp", help="With the config.json's layers that predict more tokens ahead, which are left out."),
]
Job = Annotated[str, typer.Argument(help="A job file, or the name of a shipped job.", autocompletion=job_names)]
JobOrPlan = Annotated[
    str, typer.Argument(help="A job file, the name of a shipped job, or a plan file.", autocompletion=job_names)
]
PlanFile = Annotated[Path, typer.Argument(help="A plan file.")]
TraceRanks = Annotated[
    str | None,
    typer.Option(help="Ranks to write to the trace, such as 0-7,16; default: all, or above 64 ranks one of each kind."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout; the text goes to stderr.")]
Seed = Annotated[int, typer.Option(help="Random seed of sampled lengths and synthetic data.", min=0)]
Mix = Annotated[
    str | None,
    typer.Option(help="Multimodal to text-only samples, such as 9:1, instead of the mix that the job draws."),
]
Effort = Annotated[
    int, typer.Option(help="Search effort, 1 (quick) to 4 (thorough); counts work, not seconds.", min=1, max=4)
]
Within = Annotated[
    str | None,
    typer.Option(
        help="Of layouts whose step takes no longer than the quickest by more than this, plan the plainest; 0: the "
        "quickest. Default: the job's, 2%."
    ),
]


class LearningRateScheduleName(str, Enum):
    constant = "constant"
    cosine = "cosine"
    linear = "linear"


class OnSpikeName(str, Enum):
    log = "log"
    rollback = "rollback"


CONSTANT = LearningRateScheduleName.constant


class DtypeName(str, Enum):
    bf16 = "bf16"
    float32 = "float32"
    float64 = "float64"


Dtype = Annotated[
    DtypeName | None, typer.Option(help="Data type to compute in; default: the plan's, else the machine's usual one.")
]


def parse_ranks(text: str | None, size: int) -> Ranks | None:
    """Parse `--trace-ranks` for a plan of `size` ranks; None where it is not given. Raises InputError."""
    if text is None:
        return None
    try:
        ranks = Ranks(Ranks.from_file(text))
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where="--trace-ranks", fix=fix) from error
    if ranks[-1] >= size:
        raise InputError(f"there is no rank {ranks[-1]}", where="--trace-ranks", fix=f"ranks are 0 to {size - 1}")
    return ranks


def parse_within(text: str | None) -> float | None:
    """Parse `--within`; None where it is not given. Raises InputError."""
    if text is None:
        return None
    most = f"from 0 to {MOST_WITHIN:.0%}"
    try:
        share = parse_share(text)
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where="--within", fix=f"{fix}; {most}") from error
    if share > MOST_WITHIN:
        message = f"predictions tell layouts apart whose steps differ by {text}"
        raise InputError(message, where="--within", fix=most)
    return share


def optional_duration(text: str | None, flag: str) -> float | None:
    """Seconds of the duration that a flag gives, such as `10m`; None where it is not given. Raises InputError."""
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(str(error), where=flag, fix="such as 90s, 10m or 1h30m") from error
