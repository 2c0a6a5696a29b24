"""Folders of samples with images and sound for tests."""

from pathlib import Path

import numpy as np

from planner.specs.model import Model, ModelEdge
from planner.specs.workload.length_sources import SamplesFile, Workload
from planner.specs.workload.sample_batches import read_sample_batches

WORDS = 64
SAMPLES = (  # tokens of text, images by height and width, frames of clips
    (5, [(13, 9), (8, 30)], []),
    (0, [(16, 16)], []),
    (9, [], []),
    (3, [(7, 11)], [27]),
    (4, [], [4, 31]),
    (1, [(20, 12)], []),
)


def write_folder(path: Path, samples=SAMPLES, channels=3, mels=4, seed=0) -> Path:
    """Random contents of these sizes; the first row of each array is of no image, as a folder may begin anywhere."""
    random = np.random.default_rng(seed)
    path.mkdir(exist_ok=True)
    tokens = [random.integers(0, WORDS, text) for text, _, _ in samples]
    np.save(path / "tokens.npy", np.concatenate(tokens).astype("uint16"))
    np.save(path / "offsets.npy", np.cumsum([0, *map(len, tokens)], dtype="int64"))
    images = [(sample, *size) for sample, (_, sizes, _) in enumerate(samples) for size in sizes]
    clips = [(sample, frames) for sample, (_, _, of) in enumerate(samples) for frames in of]
    if images:
        firsts = np.cumsum([1, *(height * width for _, height, width in images)])
        np.save(path / "images.npy", np.column_stack([images, firsts[:-1]]).astype("int64"))
        np.save(path / "pixels.npy", random.integers(0, 256, (firsts[-1], channels)).astype("uint8"))
    if clips:
        firsts = np.cumsum([1, *(frames for _, frames in clips)])
        np.save(path / "clips.npy", np.column_stack([clips, firsts[:-1]]).astype("int64"))
        np.save(path / "frames.npy", random.standard_normal((firsts[-1], mels)).astype("float32"))
    return path


def model_of(specs) -> Model:
    """Encoders that feed `llm`."""
    edges = tuple(ModelEdge(source=name, target="llm") for name in specs if name != "llm")
    return Model(format=Model.FORMAT, name="made up", source="made up", modules=specs, edges=edges)


def planned(folder: Path, specs, **said):
    """The batch that a job on the folder plans."""
    workload = Workload(lengths=SamplesFile(path=folder.name), batch_rows=len(SAMPLES), module="llm", **said)
    (batch,) = read_sample_batches(workload, model_of(specs), "llm", (1, 0), 0, folder.parent)
    return batch


def facts(batch):
    """Items and feeds of a plan, by module."""
    feeds = {name: {item: readers for item, (readers,) in of["llm"].items()} for name, of in batch.feeds.items()}
    return {"items": {"llm": batch.items, **batch.streams}, "feeds": feeds}
