"""The options of the command that resumes a run from what it saved: all of its own that the run must have again."""

import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from planner.runtime.run_options import RunOptions, TrainingOptions

# Flags whose names are not those of their fields.
FLAGS = {"decay": "--weight-decay", "max_seconds": "--max-time", "hang_seconds": "--hang-after"}
# Fields of `RunOptions`, in this order.
REPEATED = (
    "save", "save_every", "keep", "keep_every", "data", "dtype", "seed", "max_seconds", "hang_seconds", "on_spike",
    "spike_steps", "check_replicas", "metrics", "features", "elastic",
)  # fmt: skip


def flag(name: str) -> str:
    """The flag of a field of `RunOptions` or `TrainingOptions`."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def resume_arguments(options: RunOptions) -> Iterator[str]:
    """Flags and values of a run that resumes from where `options` saved, and saves there again; without `--steps`.

    Weights are those of the checkpoint then, and nothing is verified again.
    """
    if options.save is not None:
        yield from ("--resume", shown(options.save))
    for name in REPEATED:
        yield from given(name, getattr(options, name), DEFAULTS[name])
    for field in fields(TrainingOptions):
        yield from given(field.name, getattr(options.training, field.name), field.default)


def resume_command(options: RunOptions, job: str | None) -> str:
    """The command that resumes such a run, with its job where that is not beside the plan; without `--steps`."""
    repeated = [*resume_arguments(options), *(["--job", shown(Path(job))] if job else [])]
    return shlex.join(["planner", "run", shown(Path(options.source)), *repeated])


def given(name: str, value: Any, default: Any) -> Iterator[str]:
    """Flag and values of an option, if it has not its default."""
    if value != default:
        yield flag(name)
    if value not in (default, True):
        yield from map(shown, value if isinstance(value, tuple) else (value,))


def shown(value: Any) -> str:
    """A value as it is typed: paths within the working folder from there, numbers to their last digit."""
    if isinstance(value, Path) and value.is_relative_to(Path.cwd()):
        return str(value.relative_to(Path.cwd()))
    return repr(value) if isinstance(value, float) else str(value)


DEFAULTS = {field.name: field.default for field in fields(RunOptions)}
