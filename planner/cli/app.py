"""The command `planner`: its verbs, and how a failure becomes a message and an exit code.

Nothing heavy is imported here or at the top of a verb, so that `--help` stays quick.
"""

import gc
import io
import logging
import signal
import sys
import traceback
from collections.abc import Callable
from enum import Enum
from types import FrameType
from typing import Annotated, Any

import typer

import planner
from planner.cli.verbs import (
    ask,
    check,
    demo,
    export,
    loader,
    loader_order,
    measurements,
    predict,
    replay,
    run,
    schedule,
    serve,
    shipped,
    show,
    solve,
    why,
)
from planner.errors import PlannerError
from planner.printable import one_line, printable

BUG = 70
UsageError: Any = typer.BadParameter.__base__  # of the click that typer has within

VERBS: dict[str, Callable[..., None]] = {  # in the order of `planner --help`
    "demo": demo.demo,
    "ask": ask.ask,
    "init": ask.init,
    "profile": measurements.profile,
    "solve": solve.solve,
    "show": show.show,
    "why": why.why,
    "why-not": why.why_not,
    "simulate": show.simulate,
    "predict": predict.predict,
    "fits": predict.fits,
    "run": run.run,
    "samples": demo.samples,
    "replay": replay.replay,
    "schedule": schedule.schedule,
    "train-policy": schedule.train_policy,
    "serve": serve.serve,
    "loader": loader.loader,
    "loader-order": loader_order.loader_order,
    "check": check.check,
    "report": show.report,
    "ledger": measurements.ledger,
    "calibrate": measurements.calibrate,
    "export": export.export,
    "import": export.import_file,
    "list": shipped.list_shipped,
    "schema": shipped.schema,
}

debugging = False


class LogLevel(str, Enum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class PrintableLog(logging.Formatter):
    """Messages quote files, as errors do."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"planner {planner.__version__}")
        raise typer.Exit


def global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    log_level: Annotated[LogLevel, typer.Option(help="Least severe log messages to show.")] = LogLevel.warning,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    global debugging
    debugging = debug
    for each in LogLevel:
        logging.addLevelName(getattr(logging, each.upper()), each.value)  # `warning: …`, as errors begin with `error: `
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableLog("%(levelname)s: %(message)s"))
    logging.basicConfig(level=getattr(logging, log_level.upper()), handlers=[handler])


def build_app() -> typer.Typer:
    """Build the command with every verb of `VERBS`."""
    command = typer.Typer(
        help="Find the parallel plan for training a model on a cluster: proven, readable, ready to launch.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    command.callback()(global_options)
    for name, verb in VERBS.items():
        command.command(name)(verb)
    return command


app = build_app()


def main() -> None:
    """Run a verb; a failure prints what, where and the fix on stderr, and sets the exit code.

    `--debug` adds a traceback. Garbage in cycles is looked for seldom: the many objects of a plan are in none.
    """
    gc.set_threshold(200_000)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, exit_on_signal)
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except UsageError as error:
        exit_with_usage(error)
    except typer.Abort:
        sys.stderr.write("Aborted!\n")
        sys.exit(1)
    except PlannerError as error:
        exit_with_error(error)
    except Exception as error:
        exit_with_bug(error)


def print_traceback(error: Exception) -> None:
    sys.stderr.write(printable("".join(traceback.format_exception(error))))


def exit_on_signal(number: int, frame: FrameType | None) -> None:
    """End the process through its `finally` blocks on Ctrl-C or SIGTERM: no orphans, no half-written files."""
    sys.exit(128 + number)


def exit_with_usage(error: Any) -> None:
    """Exit as typer would where it cannot parse what was typed, which its message quotes."""
    message = io.StringIO()
    error.show(message)
    sys.stderr.write(printable(message.getvalue()))
    sys.exit(error.exit_code)


def exit_with_error(error: PlannerError) -> None:
    from planner.files import with_position

    if debugging:
        print_traceback(error)
    for each in error.errors:
        each.where = with_position(each.where)
        message, *rest = str(each).split("\n")
        sys.stderr.write("\n  ".join([f"error: {message}", *rest]) + "\n")
    sys.exit(error.exit_code)


def exit_with_bug(error: Exception) -> None:
    if debugging:
        print_traceback(error)
    told = printable(f"{type(error).__name__}: {error}")
    sys.stderr.write(f"error: {told}\n  this is a bug in planner, not in your input\n")
    sys.stderr.write("  fix: run it again with `planner --debug …` and report what it prints\n")
    sys.exit(BUG)
