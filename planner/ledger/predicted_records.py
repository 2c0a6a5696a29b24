"""Published records with their predictions, or the reason why there is none."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.errors import PlannerError
from planner.published import CasePrediction, PublishedCase, SkippedRecord

Predictor = Callable[[Sequence[PublishedCase]], list[CasePrediction]]

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
        return [*map(PredictedRecord, cases, predict(cases))], []
    except Exception:
        each = [predict_single(case, predict) for case in cases]
    return (
        [one for one in each if isinstance(one, PredictedRecord)],
        [one for one in each if isinstance(one, SkippedRecord)],
    )


def predict_single(case: PublishedCase, predict: Predictor) -> PredictedRecord | SkippedRecord:
    try:
        (prediction,) = predict([case])
        return PredictedRecord(case, prediction)
    except PlannerError as error:
        return SkippedRecord(case.origin, "no prediction", error.message)
    except Exception as error:
        return SkippedRecord(case.origin, "the predictor failed", f"{type(error).__name__}: {error}")
