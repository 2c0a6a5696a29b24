"""A run that a signal ended ends what it is a part of, with the exit code that shells have for the signal."""

from planner.ledger import ComparedRun

EXIT_CODES = {"interrupt": 130, "terminate": 143, "hangup": 129}  # by why a run stopped: 128 and the signal


def exit_if_interrupted(ran: ComparedRun) -> None:
    """Raises SystemExit behind a run that a signal ended."""
    if ran.stop_reason in EXIT_CODES:
        raise SystemExit(EXIT_CODES[ran.stop_reason])
