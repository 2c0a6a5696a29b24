"""The data loader of a training job: samples of its folder, as `planner run --data` reads, decodes and packs them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from planner import files
from planner.errors import InputError
from planner.models.inputs import SampleFolderSource, TokenFolder, sample_source
from planner.profiling.loader_profile import MeasuredLoader
from planner.specs.inputs import Inputs
from planner.specs.layers import Module
from planner.specs.workload.length_sources import SamplesFile, TokensFolder

Stored = tuple[Module, int, Any]  # module, item, and what the files hold of it


@dataclass(frozen=True, slots=True)
class FolderStages:
    """The stages of samples of a folder."""

    source: SampleFolderSource | TokenFolder
    decoder: Module
    encoders: tuple[Module, ...]

    @property
    def text(self) -> TokenFolder:
        return self.source.text if isinstance(self.source, SampleFolderSource) else self.source

    def read(self, sample: int) -> list[Stored]:
        """The tokens of a sample, and its images and clips, copied from the files."""
        begin, end = self.text.token_range(sample)
        stored: list[Stored] = [(self.decoder, sample, np.array(self.text.tokens[begin:end]))]
        if isinstance(self.source, SampleFolderSource):
            for spec in self.encoders:
                media = self.source.media(spec)
                stored += [(spec, item, np.array(media.read(item))) for item in media.of_sample(sample)]
        return stored

    def decode(self, stored: list[Stored]) -> list[tuple[Module, Tensor]]:
        """Token ids, patches and windows of frames, as the modules read them."""
        return [(spec, self.decoded(spec, item, values)) for spec, item, values in stored]

    def decoded(self, spec: Module, item: int, values: Any) -> Tensor:
        """One item as its module reads it. Raises InputError for tokens outside of the vocabulary."""
        if spec is self.decoder:
            tokens = torch.from_numpy(values.astype("int64"))
            self.text.require_in_vocabulary(tokens, item, 0, spec.output_vocabulary)
            return tokens
        assert isinstance(self.source, SampleFolderSource), "a folder of tokens has no images"
        return self.source.contents(spec, item, values)

    def pack(self, samples: list[list[tuple[Module, Tensor]]]) -> list[Tensor]:
        """The items of several samples, by module one after another."""
        every = [each for sample in samples for each in sample]
        of_modules = ([values for of, values in every if of is spec] for spec in (self.decoder, *self.encoders))
        return [torch.cat(values) for values in of_modules if values]


def loader_of_job(inputs: Inputs) -> MeasuredLoader:
    """The loader of a job whose samples are in a folder. Raises InputError for others."""
    lengths, job = inputs.job.workload.lengths, inputs.sources["job"]
    folder = job.parent / lengths.path if isinstance(lengths, SamplesFile | TokensFolder) else Path()
    if not isinstance(lengths, SamplesFile | TokensFolder) or not folder.is_dir():
        fix = "lengths: {from: tokens, path: FOLDER}, or {from: samples, path: FOLDER}"
        raise InputError("the job's samples are in no folder", where=files.place(job, "workload", "lengths"), fix=fix)
    source = sample_source(folder, 0)
    assert isinstance(source, SampleFolderSource | TokenFolder), "a folder is not synthetic"
    has = isinstance(source, SampleFolderSource) and {
        "patches": source.folder.images is not None,
        "frames": source.folder.clips is not None,
    }
    encoders = tuple(spec for spec in inputs.model.modules.values() if has and has.get(spec.input_unit))
    of = FolderStages(source, inputs.spec, encoders)
    count = len(of.text.offsets) - 1
    batch = min(inputs.job.workload.batch_rows, count)
    return MeasuredLoader(inputs.job.name, count, {"read": of.read, "decode": of.decode}, of.pack, batch)
