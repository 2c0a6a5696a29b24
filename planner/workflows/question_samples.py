"""The samples of a question: text, with the images and the sound of each where a model reads them."""

import logging
import re

from planner import files
from planner.errors import InputError
from planner.specs.model import Model
from planner.specs.workload.length_sources import (
    DrawnClips,
    DrawnImages,
    LengthSource,
    SampleMix,
    SamplesFile,
    TokensFolder,
)
from planner.specs.workload.sample_mix import CLIPS, IMAGES, draw_clips, draw_images
from planner.specs.workload.sample_records import SECONDS, SIZE, Sample, sample_fault
from planner.specs.workload.sample_sizes import SampleReaders, sample_readers, sized_sample

LOG = logging.getLogger(__name__)
USUAL_TEXT = 512  # tokens of text in a sample with images or sound, where a question gives none: assumed
TIMES = re.compile(r"(?P<what>[^*]+)(?:\*(?P<each>[1-9][0-9]{0,3}))?")
IMAGES_FIX = "--images 1280x960, of several 1280x960+640x480 or 1280x960*4, or a name of planner list images"
AUDIO_FIX = "--audio 7.2, of several 7.2+3 or 7.2*4, or a name of planner list audio"


def asked_samples(model: Model, text: LengthSource | int, images: str, audio: str) -> tuple[LengthSource | int, str]:
    """Where samples are from, and the module whose items they are, empty for the only one. `text`: lengths of the text
    of each, or a folder or file that says all. Raises InputError where the model does not read what they have.
    """
    if len(model.modules) == 1 and not images and not audio:
        return text, ""
    module = loss_module(model)
    readers = sample_readers(model, module, "--model")
    if isinstance(text, SamplesFile) and not images and not audio:
        return text, module
    if isinstance(text, SamplesFile | TokensFolder | SampleMix):
        fix = "leave --images and --audio out, or give --seq, a distribution, or a file of lengths"
        raise InputError("a folder, or file, of samples says their images and sound itself", where="--lengths", fix=fix)
    seen, heard = asked_images(images), asked_clips(audio)
    if seen:
        require_readable(readers, Sample(1, images=draw_images(seen, (0, 1), 0)[0]), "--images")
    if heard:
        require_readable(readers, Sample(1, audio=draw_clips(heard, (0, 1), 0)[0]), "--audio")
    some = bool(seen or heard)
    if not some:
        told = "--images 1280x960 gives each an image" if readers.patches else "--audio 7.2 gives each a clip of sound"
        LOG.warning(f"samples of text alone, of which encoders of {model.name} read nothing: {told}")
    mix = SampleMix(text=text, multimodal=int(some), text_only=int(not some), images=seen, audio=heard)
    return mix, module


def loss_module(model: Model) -> str:
    """The module that ends in a loss, as it feeds no other. Raises InputError where there are several."""
    found = [name for name in model.modules if not model.targets(name)]
    if len(found) > 1:
        message = f"{' and '.join(f'`{name}`' for name in found)} of {model.name} feed no other module"
        key = "tasks" if model.tasks else "module"
        raise InputError(message, where="--model", fix=f"write a job, and say workload.{key}")
    return found[0]


def asked_images(text: str) -> DrawnImages | None:
    """Images of each sample, as `1280x960`, `1280x960+640x480`, `coco`, `coco*2`; empty: None. Raises InputError."""
    name, sizes, each = named_or_given(text, "--images", [*IMAGES], SIZE, IMAGES_FIX)
    if name or not sizes:
        return DrawnImages(name=name, each=each) if name else None
    return DrawnImages(sizes=tuple((int(size[1]), int(size[2])) for size in sizes), each=each)


def asked_clips(text: str) -> DrawnClips | None:
    """Clips of each sample in seconds, as `7.2`, `7.2+3`, `librispeech`, `7.2*2`; empty: None. Raises InputError."""
    name, clips, each = named_or_given(text, "--audio", [*CLIPS], SECONDS, AUDIO_FIX)
    if name or not clips:
        return DrawnClips(name=name, each=each) if name else None
    return DrawnClips(seconds=tuple(float(clip[0]) for clip in clips), each=each)


def named_or_given(
    text: str, option: str, names: list[str], pattern: re.Pattern[str], fix: str
) -> tuple[str, list[re.Match[str]], int]:
    """The distribution that an option names, else what it gives one by one; and how many times. Raises InputError."""
    if not text.strip():
        return "", [], 1
    times = TIMES.fullmatch(text.strip())
    if not times:
        raise InputError(f"`{text[:40]}` says no number of times", where=option, fix=fix)
    what, each = times["what"].strip(), int(times["each"] or 1)
    if what in names:
        return what, [], each
    given = [pattern.fullmatch(part.strip()) for part in what.split("+")]
    if not all(given):
        message = f"`{what[:40]}` is neither sizes nor a name of a distribution"
        raise InputError(message, where=option, fix=files.nearest_word(what, names) or fix)
    return "", [match for match in given if match], each


def require_readable(readers: SampleReaders, sample: Sample, option: str) -> None:
    """Raises InputError where a model does not read what a sample has, or no sample has it."""
    fault = sample_fault(sample)
    if fault:
        raise InputError(fault, where=option, fix=AUDIO_FIX)
    sized_sample(readers, sample, option)
