"""Shell completion of the names of what is shipped, as `planner list` shows them."""

from pathlib import Path

TABLES = ("lengths", "images", "audio", "strategies")  # of which names stand in the code


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
    if kind in ("images", "audio"):
        from planner.specs.workload.sample_mix import CLIPS, IMAGES

        return [*(IMAGES if kind == "images" else CLIPS)]
    from planner.strategies import STRATEGIES

    return [*STRATEGIES, "best"]


def job_names(incomplete: str) -> list[str]:
    return names("jobs", incomplete) + [str(path) for path in Path().glob(f"{incomplete}*.yaml")]


def model_names(incomplete: str) -> list[str]:
    return names("models", incomplete)


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


def strategy_names(incomplete: str) -> list[str]:
    return names("strategies", incomplete)
