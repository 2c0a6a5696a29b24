"""The names that a job refers to: all that are not there are said at once, with the ones that may have been meant."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from planner import files
from planner.errors import InputError, InputErrors
from planner.specs import library
from planner.specs.framework.software import ANY, Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.job import Job
from planner.specs.model import Model
from planner.specs.workload.distributions import DISTRIBUTIONS
from planner.specs.workload.length_sources import Distribution, StreamDistribution

FILES: dict[str, type] = {"model": Model, "cluster": Cluster, "software": Software, "profile": Profile}
NOT_FILES = {"software": ANY, "profile": "auto"}  # words that name no file
NameTables = Mapping[str, Collection[str]]  # key of a job → the names that it may have

NO_TABLES: NameTables = {}


def require_names(job: Job, path: Path, tables: NameTables) -> None:
    """Raises InputError naming every file, table entry and distribution that a job, read from `path`, misnames."""
    errors = [
        *missing_files(job, path),
        *(
            misnamed(key, getattr(job, key), [*known], files.place(path, key))
            for key, known in tables.items()
            if getattr(job, key) not in ("", *known)
        ),
        *missing_distributions(job, path),
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)


def missing_files(job: Job, path: Path) -> Iterator[InputError]:
    """Yield an error for each file that is named and not shipped."""
    for key, kind in FILES.items():
        name = getattr(job, key)
        if name != NOT_FILES.get(key) and not library.is_path(name):
            try:
                library.find_file(name, kind, path.parent)
            except InputError as error:
                yield InputError(error.message, where=files.place(path, key), fix=error.fix)


def missing_distributions(job: Job, path: Path) -> Iterator[InputError]:
    """Yield an error for each distribution that there is not, of samples and of streams."""
    drawn: list[tuple[tuple[str, ...], object]] = [(("lengths",), job.workload.lengths)]
    drawn += [(("streams", name), each) for name, each in job.workload.streams.items()]
    for route, source in drawn:
        if isinstance(source, Distribution | StreamDistribution) and source.name not in DISTRIBUTIONS:
            where = files.place(path, "workload", *route, "name")
            yield misnamed("distribution", source.name, [*DISTRIBUTIONS], where)


def misnamed(what: str, name: str, known: list[str], where: str) -> InputError:
    """The error for a name that is not in a table."""
    fix = files.nearest_word(name, known) or f"one of {', '.join(known)}"
    return InputError(f"no {what} is called `{name}`", where=where, fix=fix)
