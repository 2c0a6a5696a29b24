"""Workloads: one length of all samples, or lengths from a file, a folder of tokens, a named distribution, or a mix.

A batch is the next `batch_rows` samples, which are items of the module that ends in a loss. Other modules have streams
of items, such as images, each with its readers.
"""

from typing import Annotated

import msgspec
from msgspec.structs import force_setattr

from planner.specs.base import Amount, Count, Name, Positive, SampleCount, Spec


class Repeated(Spec):
    """Epochs over a data set, each of the same samples. What a frozen encoder makes of them is the same in every epoch
    unless its inputs are changed.
    """

    epochs: Count
    samples: Count  # of the data set: what is kept of it are as many times the mean of a batch
    augmented: tuple[Name, ...] = ()  # encoders whose inputs each epoch changes, as images that are cropped at random


class FixedLength(Spec, tag_field="from", tag="fixed"):
    """Every sample has this many tokens, as where documents are packed to one length; `lengths: 8192` says the same."""

    tokens: Count


class LengthsFile(Spec, tag_field="from", tag="file"):
    """One length a line, or a CSV column; `.gz` is unpacked. A relative path is relative to the job's file."""

    path: str
    column: str = "tokens"


class TokensFolder(Spec, tag_field="from", tag="tokens"):
    """The samples of a folder of tokens (specs/workload/token_folder.py), on which `planner run --data` trains."""

    path: str  # relative to the job's file


class Distribution(Spec, tag_field="from", tag="distribution"):
    """A shipped distribution, fitted to published or measured quantiles."""

    name: str


class LogNormal(Spec):
    """A log-normal component of a mix."""

    weight: Amount
    median: Amount
    sigma: Amount


class LogNormalMix(Spec, tag_field="from", tag="mix"):
    """A mixture of log-normals."""

    parts: Annotated[tuple[LogNormal, ...], msgspec.Meta(min_length=1)]


class StreamFile(Spec, tag_field="from", tag="file"):
    """A CSV of items, one a line, counted from 0: their sizes in the module's input unit, and the items of the next
    module that read them, by number. `1024+256` is an item of two images, `3+4` has two readers.
    """

    path: str
    column: str = "tokens"
    reads: str | dict[Name, str] = "reads"  # column of the readers; where several modules read, one for each


class StreamDistribution(Spec, tag_field="from", tag="distribution"):
    """Sizes drawn from a shipped distribution: `each` items for each item of the module that reads them."""

    name: str
    each: SampleCount = 1


class StreamMix(Spec, tag_field="from", tag="mix"):
    """Sizes drawn from a mixture of log-normals: `each` items for each item of the module that reads them."""

    parts: Annotated[tuple[LogNormal, ...], msgspec.Meta(min_length=1)]
    each: SampleCount = 1


class SamplesFile(Spec, tag_field="from", tag="samples"):
    """Samples with images, videos and sound, as CSV or JSON lines; `.gz` is unpacked. Or a folder that has them
    (specs/workload/sample_folder.py), on which `planner run --data` trains. The model's rules say how many patches,
    frames and tokens they are.
    """

    path: str  # relative to the job's file


class DrawnImages(Spec):
    """Images of a multimodal sample: their sizes drawn from a shipped distribution, or given."""

    name: str = ""
    sizes: tuple[tuple[Count, Count], ...] = ()  # in place of a name: width and height in pixels of each
    each: SampleCount = 1  # images a sample, or times that it has all of `sizes`: an assumption of the job

    def __post_init__(self) -> None:
        if bool(self.name) == bool(self.sizes):
            raise ValueError("images are drawn from a name, or have sizes | {name: coco}, or {sizes: [[1280, 960]]}")


class DrawnClips(Spec):
    """Clips of sound of a multimodal sample: their durations drawn from a shipped distribution, or given."""

    name: str = ""
    seconds: tuple[Positive, ...] = ()  # in place of a name: of each clip
    each: SampleCount = 1  # clips a sample, or times that it has all of `seconds`: an assumption of the job

    def __post_init__(self) -> None:
        if bool(self.name) == bool(self.seconds):
            raise ValueError("clips are drawn from a name, or have seconds | {name: librispeech}, or {seconds: [7.2]}")


TextSource = FixedLength | LengthsFile | Distribution | LogNormalMix


class SampleMix(Spec, tag_field="from", tag="sample_mix"):
    """Samples drawn: `multimodal` of them with images or sound to `text_only` without."""

    text: TextSource | Count  # tokens of text in each sample
    multimodal: Amount = 1
    text_only: Amount = 0
    images: DrawnImages | None = None
    audio: DrawnClips | None = None


LengthSource = FixedLength | LengthsFile | TokensFolder | Distribution | LogNormalMix | SamplesFile | SampleMix
Stream = StreamFile | StreamDistribution | StreamMix


class TaskSamples(Spec):
    """The samples of one task in a step, each an item of every module of the task: their number, and sizes of the items
    in each module's input unit; a number: all have this many.
    """

    batch_rows: SampleCount
    streams: dict[Name, Count | StreamDistribution | StreamMix]


class Workload(Spec):
    """The data of a job: lengths of samples, batches, and streams of items of other modules; or samples of tasks."""

    lengths: LengthSource | Count = 0  # a number: all samples have this many tokens. Only tasks go without
    batch_rows: SampleCount = 0  # samples of a step; of tasks, the sum over all
    max_tokens: Count | None = None  # longer samples are dropped from their batch, and the plan names them; None: none
    # By encoder: patches or frames of a sample. Those with more are dropped likewise
    max_inputs: dict[Name, Count] = {}
    round_to: Count = 1  # lengths are padded up to a multiple of this many tokens
    module: str = ""  # whose items the samples are; empty: the only module of the model
    streams: dict[Name, Stream] = {}  # items of every other module, where there are several
    repeated: Repeated | None = None  # epochs over the data set: what frozen encoders compute may be kept for the next
    tasks: dict[Name, TaskSamples] = {}  # by task of the model, in place of lengths
    # Of a model that is served: a file of requests (specs/workload/requests), in place of all else
    requests: str = ""

    def __post_init__(self) -> None:
        if self.requests:
            if self.lengths or self.streams or self.tasks or self.batch_rows:
                raise ValueError("requests are served, and samples trained on | leave out one of them")
            return
        samples = sum(task.batch_rows for task in self.tasks.values())
        if self.tasks and (self.lengths or self.streams or self.batch_rows not in (0, samples)):
            raise ValueError("tasks say numbers and sizes themselves | leave out lengths, streams and batch_rows")
        for name in ("lengths", "batch_rows") if not self.tasks else ():
            if not getattr(self, name):
                raise ValueError(
                    f"Object missing required field `{name}`"
                )  # in msgspec's words, as it is located by them
        if samples:
            force_setattr(self, "batch_rows", samples)
