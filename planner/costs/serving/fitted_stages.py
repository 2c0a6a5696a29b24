"""Prices of serving fitted to what somebody measured: a table of `stage, batch, tokens, seconds`, one pass a line.

    encode    batch images of tokens each         once + a·batch·tokens + b·batch·tokens²
    prefill   batch prompts of tokens each        once + a·batch·tokens + b·batch·tokens²/2
    decode    batch answers to tokens each        once + a·batch        + b·batch·tokens

Least squares of relative errors, no coefficient below 0: of all sets of coefficients the best. Memory, and what moves
take, stay as rates have them.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner import files
from planner.costs.serving.stage_prices import EncodePrices, IterationPrices, StagePrices, line_table
from planner.errors import InputError

COLUMNS = "stage, batch, tokens, seconds"
STAGES = ("encode", "prefill", "decode")
LEAST = 3  # measurements of a stage: as many as it has coefficients


class Pass(NamedTuple):
    """One measured pass."""

    stage: str
    batch: float
    tokens: float
    seconds: float


class Line(NamedTuple):
    """Fitted coefficients: seconds once, for each token (of decode: each answer), for each pair (each cached token)."""

    once: float
    each: float
    pair: float
    error: float  # largest relative one of four fifths of the rows


def fitted_prices(prices: StagePrices, path: Path, model: str) -> StagePrices:
    """Prices with the stages of a table in place of rates. Raises InputError, also for a stage that it lacks."""
    rows = read_passes(path, model)
    wanted = STAGES if prices.encode else STAGES[1:]
    lines = {stage: fitted_line([each for each in rows if each.stage == stage], stage, path) for stage in wanted}
    prefill, decode = lines["prefill"], lines["decode"]
    encode = lines.get("encode")
    return replace(
        prices,
        encode=EncodePrices(line_table(encode.once, encode.each), encode.pair) if encode else None,
        iteration=IterationPrices(
            steps=line_table(decode.once, decode.each),
            passes=line_table(prefill.once, prefill.each),
            pair_s=prefill.pair,
            cached_s=decode.pair,
        ),
        source=f"fitted to {path.name}",
        spread=max(line.error for line in lines.values()),
    )


def read_passes(path: Path, model: str) -> list[Pass]:
    """The measured passes of a table: where it has a column `model`, those of this one. Raises InputError."""
    rows = []
    for where, cells in files.read_records(path, COLUMNS, {"module": "stage"}):
        if cells.get("model", model) != model:
            continue
        try:
            row = Pass(cells["stage"], *(float(cells[name]) for name in ("batch", "tokens", "seconds")))
        except (KeyError, ValueError) as error:
            raise InputError("this is no measurement", where=where, fix=f"columns {COLUMNS}") from error
        if row.stage not in STAGES or not all(0 < each < 1e12 for each in row[1:]):
            fix = f"a stage of {', '.join(STAGES)}, and numbers above 0"
            raise InputError("this is no measurement of a stage", where=where, fix=fix)
        rows.append(row)
    return rows


def fitted_line(rows: Sequence[Pass], stage: str, path: Path) -> Line:
    """The coefficients of a stage. Raises InputError where too little was measured."""
    if len({row[1:3] for row in rows}) < LEAST:
        fix = f"{LEAST} lines of {stage} or more, with unlike batch and tokens"
        raise InputError(f"the stage {stage} has no prices: {len(rows)} measurements", where=str(path), fix=fix)
    batch, tokens, seconds = np.array([row[1:] for row in rows]).T
    inner = batch if stage == "decode" else batch * tokens
    outer = {"encode": batch * tokens**2, "prefill": batch * tokens**2 / 2.0, "decode": batch * tokens}[stage]
    features = np.stack([np.ones_like(batch), inner, outer], axis=1) / seconds[:, None]
    found = best = None
    for chosen in chain.from_iterable(combinations(range(3), count) for count in (3, 2, 1)):
        own, *_ = np.linalg.lstsq(features[:, chosen], np.ones(len(rows)), rcond=None)
        left = float(np.sum((features[:, chosen] @ own - 1.0) ** 2))
        if (own >= 0.0).all() and (best is None or left < best):
            best, found = left, np.zeros(3)
            found[list(chosen)] = own
    assert found is not None, "one coefficient alone is never below 0"
    errors = np.abs(features @ found - 1.0)
    once, each, pair = found.tolist()
    return Line(once, each, pair, float(np.quantile(errors, 0.8)))
