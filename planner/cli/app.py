"""The command `planner`: verbs, and what happens when one fails.

Nothing heavy is imported here or at the top of a verb, so that `--help` stays quick.
"""

import logging
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Annotated

import typer

import planner
from planner.cli import (
    calibrate,
    check,
    demo,
    export,
    fits,
    import_,
    ledger,
    models,
    predict,
    profile,
    replay,
    report,
    run,
    schema,
    show,
    simulate,
    solve,
    why,
    why_not,
)
from planner.errors import PlannerError

BUG = 70

VERBS: dict[str, Callable[..., None]] = {  # in the order of `planner --help`
    "demo": demo.demo,
    "profile": profile.profile,
    "solve": solve.solve,
    "show": show.show,
    "why": why.why,
    "why-not": why_not.why_not,
    "simulate": simulate.simulate,
    "predict": predict.predict,
    "fits": fits.fits,
    "run": run.run,
    "replay": replay.replay,
    "check": check.check,
    "report": report.report,
    "ledger": ledger.ledger,
    "calibrate": calibrate.calibrate,
    "export": export.export,
    "import": import_.import_order,
    "models": models.models,
    "schema": schema.schema,
}

debugging = False


def say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"planner {planner.__version__}")
        raise typer.Exit


def settings(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "warning",
    version: Annotated[bool, typer.Option("--version", callback=say_version, is_eager=True, help="Say it.")] = False,
) -> None:
    global debugging
    debugging = debug
    level = logging.getLevelNamesMapping().get(log_level.upper()) if hasattr(logging, "getLevelNamesMapping") else None
    logging.basicConfig(level=level or getattr(logging, log_level.upper(), logging.WARNING), stream=sys.stderr)


def with_verbs() -> typer.Typer:
    """The command, with every verb of the table."""
    made = typer.Typer(
        help="Decide how to spread a model over a cluster: proven, readable, launchable.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    made.callback()(settings)
    for name, verb in VERBS.items():
        made.command(name)(verb)
    return made


app = with_verbs()


def main() -> None:
    """Run a verb; a failure is three lines on stderr and an exit code, never a traceback unless asked for."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    try:
        app()
    except PlannerError as error:
        leave(error)
    except Exception as error:
        bug(error)


def interrupted(number: int, frame: FrameType | None) -> None:
    """Ctrl-C and termination end the process through its `finally` blocks: no orphans, no half-written files."""
    sys.exit(128 + number)


def leave(error: PlannerError) -> None:
    if debugging:
        traceback.print_exception(error)
    message, *rest = str(error).split("\n")
    sys.stderr.write("\n  ".join([f"error: {message}", *rest]) + "\n")
    sys.exit(error.exit_code)


def bug(error: Exception) -> None:
    if debugging:
        traceback.print_exception(error)
    sys.stderr.write(f"error: {type(error).__name__}: {error}\n  this is a bug in planner, not in your input\n")
    sys.stderr.write("  fix: run it again with `planner --debug …` and report what it prints\n")
    sys.exit(BUG)
