"""Errors that a user can act on, and the exit code of each.

    PlannerError
    ├── InputError    2   a file or an argument is wrong: where, and how to fix it
    │   └── Unsupported   a strategy, or the prices that there are, do not cover what is asked; another may
    ├── Infeasible    3   the job is well formed, nothing satisfies it: which limit binds, and what would relax it
    ├── Impossible   70   a figure of an answer cannot be: a bug of planner's, which is told instead of the figure
    └── RunFailed     5   a launched job failed: which rank, in which task
        └── RanksLost     a process is gone, or does not go on; others may go on without it

Any other exception that escapes is a bug (exit 70). A regression found by `check` is a result, not an error (exit 1).
"""

from collections.abc import Sequence

from planner.printable import one_line, printable


class PlannerError(Exception):
    """An error as three lines: what is wrong, where, and what would fix it."""

    exit_code = 70

    def __init__(self, message: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    @property
    def errors(self) -> "tuple[PlannerError, ...]":
        """Itself, or all of those that were found together."""
        return (self,)

    def shown(self, text: str) -> str:
        """One of its lines: they may quote files that anyone wrote."""
        return printable(text)

    def __str__(self) -> str:
        lines = [self.shown(self.message)]
        if self.where:
            lines.append(f"at {self.shown(self.where)}")
        if self.fix:
            lines.append(f"fix: {self.shown(self.fix)}")
        return "\n".join(lines)


class InputError(PlannerError):
    exit_code = 2

    def shown(self, text: str) -> str:
        return one_line(text)


class Unsupported(InputError):
    """A strategy, or the prices that there are, do not cover what is asked; another may."""


class InputErrors(InputError):
    """Several things that are wrong with one input; as text three lines each."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        super().__init__(errors[0].message, where=errors[0].where, fix=errors[0].fix)
        self.found = tuple(errors)

    @property
    def errors(self) -> "tuple[PlannerError, ...]":
        return self.found

    def __str__(self) -> str:
        return "\n".join(map(str, self.found))


class Infeasible(PlannerError):
    exit_code = 3


class Impossible(PlannerError):
    """A figure of an answer cannot be, whatever the input."""


class RunFailed(PlannerError):
    exit_code = 5


class RanksLost(RunFailed):
    """Processes of a job are gone or do not go on, and not for an exception, which the others might raise again."""

    def __init__(self, message: str, *, where: str = "", fix: str = "", ranks: Sequence[int] = ()) -> None:
        super().__init__(message, where=where, fix=fix)
        self.ranks = tuple(ranks)
