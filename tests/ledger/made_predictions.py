"""Cases that nobody measured, and a predictor that knows how far it is off."""

from dataclasses import replace

from planner.costs.layout_columns import LayoutColumns
from planner.ledger.accuracy import accuracy_report
from planner.ledger.predicted_records import PredictedRecord
from planner.published.published_case import (
    CasePrediction,
    PublishedCase,
    RecordOrigin,
    SkippedRecord,
    StatedNetwork,
)
from planner.specs.layers import Decoder

MODULE = Decoder(layers=2, hidden=64, heads=4, ffn=128, vocab=100)


def case(line=2, source="a", group="g", seconds=1.0, **fields):
    """A case; `tp` and other fields of Columns go there."""
    setup = LayoutColumns(ranks=8, seq=128, batch=16, tp=fields.pop("tp", 1), micro_batch=fields.pop("micro_batch", 1))
    plain = PublishedCase(
        origin=RecordOrigin(source, f"{source}-{line}", group, f"{source}.csv", line),
        module=MODULE,
        setup=setup,
        device="h100-80gb",
        software="megatron",
        network=StatedNetwork(8),
        settings_text="",
        attention_kernel="newest",
        seconds=seconds,
        memory_bytes=None,
        memory_rank="worst",
        oom=False,
    )
    return replace(plain, **fields)


def skipped(line, source="a", reason="no profile of the device", detail=""):
    return SkippedRecord(RecordOrigin(source, f"{source}-{line}", "", f"{source}.csv", line), reason, detail)


def prediction(seconds=1.0, memory_bytes=1e9, oom_probability=0.0, spread=0.1):
    return CasePrediction(seconds, spread, memory_bytes, oom_probability, "fitted")


def perfect(cases, factor=1.0):
    """What was measured, times a factor."""
    return [
        prediction((case.seconds or 1.0) * factor, (case.memory_bytes or 1e9) * factor, float(case.oom))
        for case in cases
    ]


def account(cases, left, predictions):
    """The accuracy of these predictions, beside the records that were skipped before."""
    return accuracy_report(map(PredictedRecord, cases, predictions), left)
