"""`planner samples`: writes a toy data set with images and sound."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, Seed


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
