"""Items from a folder of samples (specs/workload/sample_folder.py): sample i is item i of the decoder, image k of the
folder item k of the vision tower, clip k item k of the audio encoder.

Where encoders feed a decoder, the first tokens of its items are their outputs: the inputs of these tokens are not used,
and they are no targets. Of a source that has whole items, outputs take the place of the first tokens; of one that has
text alone, they stand before it.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from planner.errors import InputError
from planner.models.batch import IGNORED
from planner.models.inputs.media_contents import clip_windows, image_patches
from planner.models.inputs.token_source import CHECKED, TokenFolder
from planner.models.inputs.training_items import Items, SampleSource, SyntheticSamples
from planner.specs.layers import Module
from planner.specs.workload.sample_folder import Media, has_media, open_sample_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FedSource:
    """A source in whose items encoders provide some tokens: `tokens` of them by item."""

    source: SampleSource
    tokens: Mapping[int, int]

    def check(self, spec: Module, items: Items) -> None:
        """Checks the underlying source."""
        self.source.check(spec, items)


class EncoderFedSource(FedSource):
    """A source of whole items, of which encoders provide the first tokens."""

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the span, shaped as in `Batch`; encoder tokens have no target."""
        inputs, targets = self.source.item(spec, item, span)
        targets = targets.clone()
        targets[: max(0, self.tokens.get(item, 0) - span[0])] = IGNORED
        return inputs, targets

    def target_count(self, spec: Module, item: int, tokens: int) -> int:
        """The number of targets of tokens that no encoder provides; those of the source start at the first token."""
        return max(0, self.source.target_count(spec, item, tokens) - self.tokens.get(item, 0))


class EncoderFirstSource(FedSource):
    """A source of text, before which outputs of encoders stand in the items."""

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the span, shaped as in `Batch`; encoder tokens have no target."""
        fed = self.tokens.get(item, 0)
        if not fed:
            return self.source.item(spec, item, span)
        first, last = (max(0, end - fed) for end in span)
        inputs, targets = self.source.item(spec, item, (first, last))
        before = torch.zeros(span[1] - span[0] - (last - first), dtype=torch.int64)
        return torch.cat([before, inputs]), torch.cat([before + IGNORED, targets])

    def target_count(self, spec: Module, item: int, tokens: int) -> int:
        """The number of targets, which are all in the text."""
        return self.source.target_count(spec, item, tokens - self.tokens.get(item, 0))


CONTENTS: dict[str, Callable[..., Tensor]] = {"patches": image_patches, "frames": clip_windows}


class SampleFolderSource:
    """A folder of samples, read item by item as needed. A decoder's items are text alone here, and may have none:
    EncoderFirstSource has outputs of encoders before it. Raises InputError where arrays are missing or wrong.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, open_sample_folder(path)
        self.text = TokenFolder(path, may_be_empty=True)
        self.last: tuple[Module, int, Tensor] | None = None  # the item that was read last: another part may be next

    def media(self, spec: Module) -> Media:
        """The images or the clips that a module reads. Raises InputError."""
        found = self.folder.images if spec.input_unit == "patches" else self.folder.clips
        if spec.input_unit == "tokens" or found is None:
            what = {"patches": "images", "frames": "clips"}.get(spec.input_unit, "second texts of samples")
            fix = "leave --data out: items are synthetic then"
            raise InputError(f"the folder has no {what}", where=str(self.path), fix=fix)
        return found

    def check(self, spec: Module, items: Items) -> None:
        """Raises InputError where an item is not in the folder. Sizes are compared before a run, where all parts of an
        item are known (runtime/preflight/data_checks.py).
        """
        for item, _ in items:
            _ = self.text.token_range(item) if spec.causal else self.media(spec).sizes(item)

    def check_values(self, spec: Module, items: Items) -> None:
        """Raises InputError for token ids outside the vocabulary, and for values that are not finite, reading each item
        once. Above CHECKED numbers it warns instead, and training raises the error.
        """
        if spec.causal:
            self.text.check_vocab(spec, items)
            return
        if not items or self.media(spec).values.dtype.kind != "f":
            return
        media = self.media(spec)
        count = sum(math.prod(media.sizes(item)) for item, _ in items) * spec.input_width
        if count > CHECKED:
            what = "%s: %d numbers are not checked before training; one that is not finite ends the run"
            logging.getLogger(__name__).warning(what, self.path / media.files.values, count)
            return
        for item, _ in items:
            self.values(media, item)

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a span, shaped as in `Batch`; targets of images and clips are zeros."""
        if spec.causal:
            return self.text.item(spec, item, span)
        if self.last is None or self.last[:2] != (spec, item):
            self.last = spec, item, self.contents(spec, item)
        outputs = (span[1] - span[0]) // spec.tokens_per_output
        return self.last[2][span[0] : span[1]], torch.zeros(outputs, spec.sent_width)

    def target_count(self, spec: Module, item: int, tokens: int) -> int:
        """The number of an item's targets."""
        return self.text.target_count(spec, item, tokens) if spec.causal else tokens // spec.tokens_per_output

    def contents(self, spec: Module, item: int, stored: "NDArray[Any] | None" = None) -> Tensor:
        """Patches or windows of frames of an item whose pixels or frames are read, or are `stored`."""
        return CONTENTS[spec.input_unit](spec, self.values(self.media(spec), item, stored))

    def values(self, media: Media, item: int, stored: "NDArray[Any] | None" = None) -> Tensor:
        """Pixels `(height, width, channels)` or frames `(frames, mels)`, read or `stored`. Raises InputError."""
        stored = media.read(item) if stored is None else stored
        values = torch.from_numpy(stored.astype(stored.dtype.newbyteorder("=")))
        if not values.is_floating_point():
            return values
        values = values.float()
        if bool(values.isfinite().all()):
            return values
        at = [int(index) for index in (~values.isfinite()).nonzero()[0]]
        what = f"{media.files.noun} {item} has {float(values[tuple(at)])} at {at}"
        raise InputError(what, where=str(self.path / media.files.values), fix="make its numbers finite in float32")


def sample_source(data: Path | None, seed: int) -> SampleSource:
    """The source of a run: a folder of tokens, or of samples with images and sound, or synthetic. Raises InputError."""
    if data is None:
        return SyntheticSamples(seed)
    return SampleFolderSource(data) if has_media(data) else TokenFolder(data, seed)


def fed_source(source: SampleSource, tokens: Mapping[int, int]) -> SampleSource:
    """The source of a module in whose items encoders provide the first tokens: `tokens` of them by item."""
    if isinstance(source, SampleFolderSource):
        return EncoderFirstSource(source, tokens)
    return EncoderFedSource(source, tokens)
