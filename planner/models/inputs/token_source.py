"""Items from files: sample i of a folder of tokens (specs/workload/token_folder.py) is item i of every decoder.

Items of text encoders are synthetic. Images and sound are in a folder of samples (folder_source.py).

A plan's item may be longer than its sample, since a job rounds lengths up: padding at the end has token 0 and no
target, and no token before it attends to it. The last token of a sample has no target, so a sample of n tokens has
n - 1 targets.
"""

import logging
import math
from pathlib import Path

import torch
from torch import Tensor

from planner.errors import InputError
from planner.models.batch import IGNORED
from planner.models.inputs.training_items import Items, SyntheticSamples
from planner.specs.layers import Module
from planner.specs.workload.token_folder import OFFSETS, TOKENS, open_offsets, open_tokens, sample_range

PADDING = 0  # the token id of padding
CHECKED = 2 * 10**9  # tokens that are checked before a run: some seconds


class TokenFolder:
    """A folder of tokens, read sample by sample as needed. Raises InputError where it does not contain the arrays."""

    def __init__(self, path: Path, seed: int = 0, may_be_empty: bool = False) -> None:
        self.path, self.may_be_empty = path, may_be_empty  # whether a sample may have no text
        self.tokens, self.offsets = open_tokens(path), open_offsets(path)
        self.synthetic = SyntheticSamples(seed)  # for modules that do not predict the next word

    def check(self, spec: Module, items: Items) -> None:
        """Raises InputError unless each item's sample exists, with a length that rounds up to the item's.

        Reads no tokens.

        All lengths were rounded up to multiples of some unit, so an item is longer than its sample by less than their
        greatest common divisor.
        """
        if spec.output_vocabulary and not spec.causal:
            message = "samples of tokens give the next word, and this module predicts masked words"
            raise InputError(message, where=str(self.path), fix="leave --data out: its items are synthetic")
        if spec.input_unit != "tokens" and items:
            message = f"item {items[0][0]} is of {spec.input_unit}, and the folder has tokens alone"
            fix = "give a folder with images or sound, or leave --data out: items are synthetic then"
            raise InputError(message, where=str(self.path), fix=fix)
        if not spec.causal:
            return
        unit = math.gcd(*(tokens for _, tokens in items))
        for item, tokens in items:
            length = self.sample_length(item)
            if not tokens - unit < length <= tokens:
                raise InputError(
                    f"sample {item} has {length} tokens, and the plan's item {item} has {tokens}: made from other data",
                    where=str(self.path),
                    fix=f"plan a job with lengths: {{from: tokens, path: {self.path}}}, or give the plan's own folder",
                )

    def check_vocab(self, spec: Module, items: Items) -> None:
        """Raises InputError for token ids outside the vocabulary, reading each sample once.

        Above CHECKED tokens it warns instead, and training raises the error.
        """
        if not spec.causal:
            return
        count = sum(tokens for _, tokens in items)
        if count > CHECKED:
            what = "%s: %d tokens are not checked before training; one outside the vocabulary ends the run"
            logging.getLogger(__name__).warning(what, self.path, count)
            return
        for item, _ in items:
            begin, end = self.token_range(item)
            stored = self.tokens[begin:end]
            if not len(stored):
                continue
            if int(stored.min()) < 0 or int(stored.max()) >= spec.output_vocabulary:
                self.require_in_vocabulary(torch.from_numpy(stored.astype("int64")), item, 0, spec.output_vocabulary)

    def sample_length(self, sample: int) -> int:
        """The number of tokens in a sample."""
        begin, end = self.token_range(sample)
        return end - begin

    def token_range(self, sample: int) -> tuple[int, int]:
        """First and last (exclusive) index of a sample among the tokens. Raises InputError."""
        begin, end = sample_range(self.offsets, self.path, sample, self.may_be_empty)
        if end > len(self.tokens):
            what = f"sample {sample} ends at token {end}, and there are {len(self.tokens)}"
            raise InputError(what, where=str(self.path / OFFSETS), fix=f"give the {TOKENS} that belongs to it")
        return begin, end

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a span, with the shapes of `Batch.inputs` and `Batch.targets`."""
        if not spec.causal:
            return self.synthetic.item(spec, item, span)
        return self.sample_tokens(item, *span, vocab=spec.output_vocabulary)

    def target_count(self, spec: Module, item: int, tokens: int) -> int:
        """The number of an item's targets."""
        return max(0, self.sample_length(item) - 1) if spec.causal else self.synthetic.target_count(spec, item, tokens)

    def sample_tokens(self, sample: int, first: int, last: int, *, vocab: int) -> tuple[Tensor, Tensor]:
        """Inputs and next-token targets, each `(last - first)` int64, of a span of an item. Raises InputError."""
        inputs = torch.full((last - first,), PADDING)
        targets = torch.full((last - first,), IGNORED)
        if first == last:
            return inputs, targets
        begin, end = self.token_range(sample)
        stored = torch.from_numpy(self.tokens[begin + first : min(begin + last + 1, end)].astype("int64"))
        self.require_in_vocabulary(stored, sample, first, vocab)
        own = stored[: last - first]
        inputs[: len(own)] = own
        targets[: max(len(stored) - 1, 0)] = stored[1:]
        return inputs, targets

    def require_in_vocabulary(self, tokens: Tensor, sample: int, first: int, vocab: int) -> None:
        """Raises InputError for the first of these token ids `(n)` that is outside the vocabulary."""
        outside = ((tokens < 0) | (tokens >= vocab)).nonzero()
        if len(outside):
            at = int(outside[0])
            raise InputError(
                f"token {first + at} of sample {sample} is {int(tokens[at])}, the model has {vocab} tokens",
                where=str(self.path / TOKENS),
                fix="tokenize with the model's own tokenizer, or train a model with more tokens",
            )
