"""Errors that a user can act on, and the exit code of each.

    PlannerError
    ├── InputError    2   a file or an argument is wrong: where, and how to fix it
    ├── Infeasible    3   the job is well formed, nothing satisfies it: which limit binds, and what would relax it
    └── RunFailed     5   a launched job failed: which rank, in which task

Any other exception that escapes is a bug (exit 70). A regression found by `check` is a result, not an error (exit 1).
"""


class PlannerError(Exception):
    """An error as three lines: what is wrong, where, and what would fix it."""

    exit_code = 70

    def __init__(self, message: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.message]
        if self.where:
            lines.append(f"at {self.where}")
        if self.fix:
            lines.append(f"fix: {self.fix}")
        return "\n".join(lines)


class InputError(PlannerError):
    exit_code = 2


class Infeasible(PlannerError):
    exit_code = 3


class RunFailed(PlannerError):
    exit_code = 5
