"""Published records with their predictions, or the reason why the two cannot be compared."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.errors import PlannerError
from planner.published.case import Case, Prediction, Skipped

Predict = Callable[[Sequence[Case]], list[Prediction]]

# Reasons to skip a record at the comparison; the reader of the files has others.
UNPREDICTED = "no prediction"
FAILED = "the predictor failed"
IMPOSSIBLE = "impossible figures"
UNMEASURED = "nothing measured"
NAMED = 0.5  # out-of-memory probability above which a record is predicted to run out of memory


@dataclass(frozen=True, slots=True)
class Row:
    """A case with its prediction; errors are signed and relative to the measured value, None without one."""

    case: Case
    predicted: Prediction

    @property
    def time_error(self) -> float | None:
        return relative(self.predicted.seconds, self.seconds)

    @property
    def memory_error(self) -> float | None:
        return relative(self.predicted.memory_bytes, self.memory_bytes)

    @property
    def seconds(self) -> float | None:
        """Measured seconds of a step; None for a run that ran out of memory, whatever its record states."""
        return None if self.case.oom else self.case.seconds

    @property
    def memory_bytes(self) -> float | None:
        """Measured peak bytes; None for a run that ran out of memory."""
        return None if self.case.oom else self.case.memory_bytes

    @property
    def named(self) -> bool:
        """Whether it is predicted to run out of memory."""
        return self.predicted.oom_probability > NAMED

    @property
    def covered(self) -> bool | None:
        """Whether the measured seconds lie within the 80 % interval, seconds·e^±spread."""
        if self.seconds is None:
            return None
        return abs(math.log(self.seconds / self.predicted.seconds)) <= self.predicted.spread

    @property
    def cost(self) -> float | None:
        """Measured rank-seconds per token, comparable across batches and numbers of ranks."""
        return None if self.seconds is None else self.seconds * rank_share(self.case)

    @property
    def predicted_cost(self) -> float:
        """Predicted rank-seconds per token."""
        return self.predicted.seconds * rank_share(self.case)


def relative(predicted: float, measured: float | None) -> float | None:
    return None if measured is None else (predicted - measured) / measured


def rank_share(case: Case) -> float:
    """Ranks over the tokens of a step."""
    return float(case.setup.ranks / (case.setup.batch * case.setup.seq))


def predicted(cases: Sequence[Case], predict: Predict) -> tuple[list[Row], list[Skipped]]:
    """Every case with its prediction, or skipped with the reason.

    They are predicted in one call, which is fastest, and one by one when that raises, so that an unforeseen record
    costs only itself and its exception is reported.
    """
    try:
        return joined(cases, predict(cases))
    except Exception:
        parts = [alone(case, predict) for case in cases]
    return [record for rows, _ in parts for record in rows], [one for _, skipped in parts for one in skipped]


def alone(case: Case, predict: Predict) -> tuple[list[Row], list[Skipped]]:
    try:
        return joined([case], predict([case]))
    except PlannerError as error:
        return [], [Skipped(case.origin, UNPREDICTED, error.message)]
    except Exception as error:
        return [], [Skipped(case.origin, FAILED, f"{type(error).__name__}: {error}")]


def joined(cases: Sequence[Case], predictions: Sequence[Prediction]) -> tuple[list[Row], list[Skipped]]:
    """Cases paired with their predictions, and those that cannot be compared. Raises ValueError for unequal numbers."""
    records, skipped = [], []
    for case, prediction in zip(cases, predictions, strict=True):
        reason = flaw(case, prediction)
        if reason:
            skipped.append(Skipped(case.origin, *reason))
        else:
            records.append(Row(case, prediction))
    return records, skipped


def flaw(case: Case, prediction: Prediction) -> tuple[str, str] | None:
    """Reason and detail why a case and its prediction cannot be compared; None where they can."""
    measured = {"seconds": case.seconds, "memory_bytes": case.memory_bytes}
    if not case.oom and all(value is None for value in measured.values()):
        return UNMEASURED, ""
    facts = {"ranks": case.setup.ranks, "batch": case.setup.batch, "seq": case.setup.seq}
    for name, value in {**measured, **facts}.items():
        if value is not None and not positive(value):
            return IMPOSSIBLE, f"{name} is {value}"
    for name, value in measured.items():
        if value is not None and not positive(getattr(prediction, name)):
            return UNPREDICTED, f"predicted {name} is {getattr(prediction, name)}"
    if not 0 <= prediction.oom_probability <= 1:
        return UNPREDICTED, f"oom_probability is {prediction.oom_probability}"
    if not 0 <= prediction.spread < math.inf:
        return UNPREDICTED, f"spread is {prediction.spread}"
    return None


def positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
