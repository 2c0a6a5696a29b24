"""Published records with their predictions, or the reason why the two cannot be compared."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.errors import PlannerError
from planner.published import CasePrediction, PublishedCase, SkippedRecord

Predictor = Callable[[Sequence[PublishedCase]], list[CasePrediction]]

# Reasons to skip a record at the comparison; the reader of the files has others.
NO_PREDICTION = "no prediction"
PREDICTOR_FAILED = "the predictor failed"
IMPOSSIBLE_FIGURES = "impossible figures"
NOTHING_MEASURED = "nothing measured"
OOM_THRESHOLD = 0.5  # out-of-memory probability above which a record is predicted to run out of memory


@dataclass(frozen=True, slots=True)
class PredictedRecord:
    """A case with its prediction; errors are signed and relative to the measured value, None without one."""

    case: PublishedCase
    prediction: CasePrediction

    @property
    def time_error(self) -> float | None:
        return relative_error(self.prediction.seconds, self.seconds)

    @property
    def left_out_seconds(self) -> float:
        """Seconds by coefficients that have not seen the case's source: predicted ones, where none have."""
        return self.prediction.left_out_seconds or self.prediction.seconds

    @property
    def left_out_error(self) -> float | None:
        return relative_error(self.left_out_seconds, self.seconds)

    @property
    def memory_error(self) -> float | None:
        return relative_error(self.prediction.memory_bytes, self.memory_bytes)

    @property
    def seconds(self) -> float | None:
        """Measured seconds of a step; None for a run that ran out of memory, whatever its record states."""
        return None if self.case.oom else self.case.seconds

    @property
    def memory_bytes(self) -> float | None:
        """Measured peak bytes; None for a run that ran out of memory."""
        return None if self.case.oom else self.case.memory_bytes

    @property
    def predicted_oom(self) -> bool:
        """Whether it is predicted to run out of memory."""
        return self.prediction.oom_probability > OOM_THRESHOLD

    @property
    def in_interval(self) -> bool | None:
        """Whether the measured seconds lie within the 80 % interval around the left-out ones, seconds·e^±spread."""
        if self.seconds is None:
            return None
        return abs(math.log(self.seconds / self.left_out_seconds)) <= self.prediction.spread

    @property
    def cost(self) -> float | None:
        """Measured rank-seconds per token, comparable across batches and numbers of ranks."""
        return None if self.seconds is None else self.seconds * ranks_per_token(self.case)

    @property
    def predicted_cost(self) -> float:
        """Predicted rank-seconds per token, left out."""
        return self.left_out_seconds * ranks_per_token(self.case)


def relative_error(predicted: float, measured: float | None) -> float | None:
    return None if measured is None else (predicted - measured) / measured


def ranks_per_token(case: PublishedCase) -> float:
    """Ranks over the tokens of a step."""
    return float(case.ranks / (case.setup.batch * case.setup.seq))


def predict_records(
    cases: Sequence[PublishedCase], predict: Predictor
) -> tuple[list[PredictedRecord], list[SkippedRecord]]:
    """Every case with its prediction, or skipped with the reason.

    They are predicted in one call, which is fastest, and one by one when that raises, so that an unforeseen record
    costs only itself and its exception is reported.
    """
    try:
        return pair_predictions(cases, predict(cases))
    except Exception:
        parts = [predict_single(case, predict) for case in cases]
    return [record for predicted, _ in parts for record in predicted], [one for _, skipped in parts for one in skipped]


def predict_single(case: PublishedCase, predict: Predictor) -> tuple[list[PredictedRecord], list[SkippedRecord]]:
    try:
        return pair_predictions([case], predict([case]))
    except PlannerError as error:
        return [], [SkippedRecord(case.origin, NO_PREDICTION, error.message)]
    except Exception as error:
        return [], [SkippedRecord(case.origin, PREDICTOR_FAILED, f"{type(error).__name__}: {error}")]


def pair_predictions(
    cases: Sequence[PublishedCase], predictions: Sequence[CasePrediction]
) -> tuple[list[PredictedRecord], list[SkippedRecord]]:
    """Cases paired with their predictions, and those that cannot be compared. Raises ValueError for unequal numbers."""
    records, skipped = [], []
    for case, prediction in zip(cases, predictions, strict=True):
        reason = comparison_flaw(case, prediction)
        if reason:
            skipped.append(SkippedRecord(case.origin, *reason))
        else:
            records.append(PredictedRecord(case, prediction))
    return records, skipped


def comparison_flaw(case: PublishedCase, prediction: CasePrediction) -> tuple[str, str] | None:
    """Reason and detail why a case and its prediction cannot be compared; None where they can."""
    measured = {"seconds": case.seconds, "memory_bytes": case.memory_bytes}
    if not case.oom and all(value is None for value in measured.values()):
        return NOTHING_MEASURED, ""
    facts = {"ranks": case.setup.ranks, "batch": case.setup.batch, "seq": case.setup.seq}
    for name, value in {**measured, **facts}.items():
        if value is not None and not is_positive(value):
            return IMPOSSIBLE_FIGURES, f"{name} is {value}"
    for name, value in measured.items():
        if value is not None and not is_positive(getattr(prediction, name)):
            return NO_PREDICTION, f"predicted {name} is {getattr(prediction, name)}"
    if not 0 <= prediction.oom_probability <= 1:
        return NO_PREDICTION, f"oom_probability is {prediction.oom_probability}"
    if not 0 <= prediction.spread < math.inf:
        return NO_PREDICTION, f"spread is {prediction.spread}"
    return None


def is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
