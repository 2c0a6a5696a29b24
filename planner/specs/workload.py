"""Where the lengths come from: a file, a folder of tokens, a named distribution, or a mix.

A batch is the next `batch_rows` rows.
"""

from typing import Annotated

import msgspec

from planner.specs.base import Amount, Count, RowCount, Spec


class LengthsFile(Spec, tag_field="from", tag="file"):
    """One length a line, or a CSV column; `.gz` is unpacked. A relative path is relative to the job's file."""

    path: str
    column: str = "tokens"


class TokensFolder(Spec, tag_field="from", tag="tokens"):
    """The rows of a folder of tokens (specs/token_rows.py), with which `planner run --data` trains."""

    path: str  # from the job's file


class Distribution(Spec, tag_field="from", tag="distribution"):
    """A shipped distribution, fitted to published or measured quantiles."""

    name: str


class Part(Spec):
    """A log-normal part of a mix."""

    weight: Amount
    median: Amount
    sigma: Amount


class Mix(Spec, tag_field="from", tag="mix"):
    """A synthetic mixture of log-normals."""

    parts: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1)]


class Workload(Spec):
    lengths: LengthsFile | TokensFolder | Distribution | Mix
    batch_rows: RowCount
    max_tokens: Count  # longer rows are dropped from their batch, and the plan names them
    round_to: Count = 1  # lengths are padded up to a multiple of this many tokens
    module: str = ""  # whose items the rows are; the only module of the model when empty
