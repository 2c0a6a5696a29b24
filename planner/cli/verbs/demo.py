"""`planner demo` runs the whole product in one command; `planner samples` writes a toy data set to learn from."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, Seed
from planner.extras import require_torch


class DemoName(str, Enum):
    """What is trained."""

    DOCUMENTS = "documents"
    MULTIMODAL = "multimodal"


def demo(
    name: Annotated[
        DemoName, typer.Argument(help="documents: a decoder, on unlike lengths; multimodal: one that sees and hears.")
    ] = DemoName.DOCUMENTS,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder for the files it writes; default: planner-demo, or planner-demo-multimodal."),
    ] = None,
    json: Json = False,
) -> None:
    """Run everything on this machine: profile, solve, simulate, run, check; or compare with usual layouts.

    Needs torch and no GPU; the files it writes can be read, edited and used again.
    """
    require_torch("demo")
    if name is DemoName.MULTIMODAL:
        multimodal(folder or Path("planner-demo-multimodal"), json)
    else:
        documents(folder or Path("planner-demo"), json)


def documents(folder: Path, json: bool) -> None:
    """The demo of a decoder on documents."""
    from planner.cli import render
    from planner.cli.views import demo_screen, json_answers
    from planner.workflows.demo import demo as run_demo

    with demo_screen.demo_printer(json, demo_screen.CHAPTERS, demo_screen.stage_lines) as listener:
        result = run_demo(folder, listener)
    render.emit(json, json_answers.demo_answer(result), *demo_screen.closing_panel(result))


def multimodal(folder: Path, json: bool) -> None:
    """The demo of a decoder that sees and hears."""
    from planner.cli import render
    from planner.cli.views import demo_screen, json_answers
    from planner.workflows.multimodal_demo import multimodal_demo

    screen = demo_screen
    with screen.demo_printer(json, screen.MULTIMODAL_CHAPTERS, screen.multimodal_stage_lines) as listener:
        result = multimodal_demo(folder, listener)
    render.emit(json, json_answers.multimodal_demo_answer(result), *screen.closing_panel(result))


def samples(
    folder: Annotated[Path, typer.Argument(help="Folder for the samples, to plan and to train on.")],
    count: Annotated[int, typer.Option(help="Number of samples.", min=1, max=10**6)] = 1024,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write a toy data set to learn from: coloured squares and tones, whose names are the words that follow.

    The folder is what `planner run --data` reads; tokens.npy has 10 words, pixels are in three colours, frames have 16
    mel bins.
    """
    from planner.cli import render
    from planner.units import plural
    from planner.workflows import toy_samples

    written = toy_samples.toy_samples(count, seed)
    toy_samples.write_samples(folder, written)
    images, clips = (sum(len(each[at]) for each in written) for at in (1, 2))
    entropy = toy_samples.text_entropy([each.words for each in written])
    answer = {"samples": count, "images": images, "clips": clips, "text_entropy": entropy, "folder": str(folder)}
    told = f"{plural(count, 'sample')}, {plural(images, 'image')}, {plural(clips, 'clip')} written to {folder}"
    render.emit(json, answer, told, f"a model of the text alone has a loss of {entropy:.4f} or more")
