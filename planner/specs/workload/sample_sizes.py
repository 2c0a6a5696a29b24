"""What a model makes of a sample: items of its encoders, and the tokens that the module with the loss reads."""

from collections.abc import Mapping
from typing import NamedTuple

from planner.errors import InputError
from planner.specs.layers import Module
from planner.specs.layers.resize import ImageSize
from planner.specs.model import Model
from planner.specs.workload.items import ItemSize, Size, item_outputs
from planner.specs.workload.sample_records import Sample


class SizedSample(NamedTuple):
    """A sample in the units of a model's modules."""

    tokens: int  # that the module with the loss reads: text, and outputs that stand among it
    items: Mapping[str, tuple[Size, ...]]  # encoder → its items, each image, video and clip one


class SampleReaders(NamedTuple):
    """The modules of a model that read parts of samples."""

    model: Model
    loss: str  # the module that ends in a loss
    patches: str = ""  # reads images and videos; empty: none
    frames: str = ""  # hears sound


def sample_readers(model: Model, loss: str, where: str) -> SampleReaders:
    """Who reads images and who hears sound. Raises InputError where that is not one module each, which feeds `loss`."""
    reader_of_unit: dict[str, str] = {}
    fix = "give each module a stream of its own: workload.streams"
    for name, module in model.modules.items():
        if name == loss:
            continue
        if module.input_unit == "tokens" and model.modules[loss].feature_width:
            message = f"samples end in a loss, and `{loss}` of {model.name} is an encoder"
            raise InputError(message, where="workload.module", fix=f"module: {name}")
        if module.input_unit == "tokens":
            raise InputError(f"samples have nothing for `{name}` of {model.name} to read", where=where, fix=fix)
        if module.input_unit in reader_of_unit:
            both = f"{reader_of_unit[module.input_unit]} and {name} of {model.name}"
            raise InputError(f"{both} read the same, and samples do not say for which it is", where=where, fix=fix)
        if model.targets(name) != (loss,):
            fed = " and ".join(model.targets(name))
            if not fed:
                fix = f"edges: [{{from: {name}, to: {loss}}}] in the model's file, or leave the module out"
                raise InputError(f"no module of {model.name} reads `{name}`", where=where, fix=fix)
            raise InputError(f"`{name}` feeds {fed}, and samples are items of `{loss}`", where=where, fix=fix)
        reader_of_unit[module.input_unit] = name
    return SampleReaders(model, loss, **reader_of_unit)


def sized_sample(readers: SampleReaders, sample: Sample, where: str) -> SizedSample:
    """A sample as the modules read it. Raises InputError."""
    try:
        seen, heard = seen_items(readers, sample), heard_items(readers, sample)
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=where, fix=fix) from error
    items = {name: sizes for name, sizes in ((readers.patches, seen), (readers.frames, heard)) if sizes}
    tokens = sample.text + sum(replaced_tokens(readers, name, size) for name in items for size in items[name])
    if not tokens:
        raise InputError("the sample has no token of text", where=where, fix="give it at least one, such as its end")
    return SizedSample(tokens, items)


def replaced_tokens(readers: SampleReaders, name: str, size: Size) -> int:
    """Outputs of an item that stand among the tokens; where they are attended to instead, the tokens that mark it."""
    outputs = item_outputs(readers.model.modules[name], size)
    edges = (edge for edge in readers.model.edges if edge.source == name)
    return sum(outputs if edge.by == "tokens" else edge.marks for edge in edges)


def seen_items(readers: SampleReaders, sample: Sample) -> tuple[Size, ...]:
    """Each image and video as an item, its tiles or frames as parts. Raises ValueError."""
    if not sample.images and not sample.videos:
        return ()
    module = reader_of(readers, readers.patches, "the sample has an image or video", "images")
    seen = [seen_size(module.image_parts(size), module.image_grid(size)) for size in sample.images]
    for video in sample.videos:
        frame = ImageSize(video.width, video.height)
        seen.append(seen_size(module.video_parts(frame, video.seconds), module.frame_grid(frame)))
    return tuple(seen)


def seen_size(parts: tuple[int, ...], grid: tuple[int, int] | None) -> Size:
    """The size of an item of these parts, each of the same grid if any."""
    if grid is None and len(parts) == 1:
        return parts[0]
    return ItemSize(patches=parts if len(parts) > 1 else parts[0], grids=(grid,) * len(parts) if grid else ())


def heard_items(readers: SampleReaders, sample: Sample) -> tuple[Size, ...]:
    """Each clip as an item, its chunks as parts. Raises ValueError."""
    if not sample.audio:
        return ()
    parts = map(reader_of(readers, readers.frames, "the sample has sound", "sound").clip_parts, sample.audio)
    return tuple(ItemSize(frames=each[0] if len(each) == 1 else each) for each in parts)


def reader_of(readers: SampleReaders, name: str, has: str, what: str) -> Module:
    """The module of this name. Raises ValueError where there is none for what a sample has."""
    if not name:
        fix = f"leave {what} out, or name a model with an encoder of it"
        raise ValueError(f"{has}, and no module of {readers.model.name} reads one | {fix}")
    return readers.model.modules[name]
