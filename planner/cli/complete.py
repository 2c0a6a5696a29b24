"""Shell completion of the names of shipped files."""

from pathlib import Path


def stems(folder: str, incomplete: str) -> list[str]:
    """Names of the shipped files in `folder` that begin with what was typed."""
    from planner.specs.library import shipped_folder

    return sorted(path.stem for path in (shipped_folder() / folder).glob("*.yaml") if path.stem.startswith(incomplete))


def job_names(incomplete: str) -> list[str]:
    return stems("jobs", incomplete) + [str(path) for path in Path().glob(f"{incomplete}*.yaml")]


def model_names(incomplete: str) -> list[str]:
    return stems("models", incomplete)
