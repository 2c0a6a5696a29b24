"""Choose how many micro-batches there are and how long each may last, by filling and looking.

The longest micro-batch is tried at the times that matter — those of the longest sequences on each degree — and at
multiples of the mean; the others share one duration, the shortest that still takes everything (bisection). Work is
counted in fills, so that the same effort gives the same packing on any machine.
"""

from dataclasses import dataclass

from planner.costs.sequences import Sequences, cheapest
from planner.packing.fill import Order, fill, make_order
from planner.packing.packed import Packed, ordered, worth

EFFORT_FILLS = {1: 40, 2: 240, 3: 1200, 4: 6000}
BISECTIONS = 8
MICRO_BATCHES = 4  # numbers of them that are tried, from the fewest that hold the tokens
FIRST_OVER_MEAN = (1.0, 1.1, 1.25, 1.5, 2.0)
LONGEST = 2  # sequences whose own times are tried as the first duration


@dataclass(slots=True)
class Search:
    """The best packing so far, and the fills left to spend."""

    problem: Sequences
    order: Order
    fills: int
    best: Packed
    value: float
    spent: int = 0

    def offer(self, packed: Packed | None) -> bool:
        """Take a packing if it is better; says whether there was one."""
        if packed is None:
            return False
        value = worth(self.problem, packed)
        if value < self.value * (1 - 1e-12):
            self.best, self.value = packed, value
        return True

    def try_spans(self, spans: list[float]) -> bool:
        self.spent += 1
        return self.offer(fill(self.order, spans))

    @property
    def exhausted(self) -> bool:
        return self.spent >= self.fills


def search(problem: Sequences, warm: Packed, effort: int) -> tuple[Packed, int]:
    """The best packing found from `warm` on, and how many fills it took."""
    run = Search(problem, make_order(problem), EFFORT_FILLS[effort], warm, worth(problem, warm))
    fewest = max(1, -(-problem.tokens // (problem.ranks * problem.cap)))
    rows, fitted = fewest, False
    while not run.exhausted and rows <= len(problem.sizes) and (rows < fewest + MICRO_BATCHES or not fitted):
        mean = mean_span(problem, rows)
        for first in first_spans(run.order, mean, rows):
            fitted |= bisect_rest(run, first, rows)
        rows += 1 if rows < fewest + MICRO_BATCHES else 1 + rows // 4  # fixed degrees can need many more
    refine(run)
    return ordered(run.best, problem), run.spent


def mean_span(problem: Sequences, rows: int) -> float:
    """What each of `rows` micro-batches lasts if every sequence ran at its cheapest and balance were perfect."""
    return sum(cheapest(problem, item, per_rank=False) for item in problem.sizes) / problem.ranks / rows


def first_spans(order: Order, mean: float, rows: int) -> list[float]:
    """Durations worth trying for the longest micro-batch; 0 means: as long as the others."""
    if rows == 1:
        return [0.0]
    critical = {seconds for _, _, options, _ in order.items[:LONGEST] for _, seconds, _ in options if seconds > mean}
    return [0.0, *sorted(critical), *(mean * factor for factor in FIRST_OVER_MEAN[1:])]


def bisect_rest(run: Search, first: float, rows: int) -> bool:
    """The shortest duration of the other micro-batches (or of all, when `first` is 0) that takes everything, if any.

    It starts from the duration at which the best packing so far would be matched: where that takes too little, nothing
    is to be gained with this first micro-batch, and one fill has shown it.
    """
    low, high = 0.0, matching_span(run, first, rows)
    if high <= 0 or run.exhausted or not run.try_spans(spans_of(first, high, rows)):
        return False
    for _ in range(BISECTIONS):
        if run.exhausted:
            break
        middle = (low + high) / 2
        if run.try_spans(spans_of(first, middle, rows)):
            high = middle
        else:
            low = middle
    return True


def matching_span(run: Search, first: float, rows: int) -> float:
    """How long the other micro-batches may last for the step to be as good as the best one known."""
    problem = run.problem
    constant = min(line.const for line in problem.lines.values()) + problem.row_seconds
    free = run.value - problem.step_seconds - rows * constant
    return (free - first) / (rows - 1) if first else free / rows


def spans_of(first: float, rest: float, rows: int) -> list[float]:
    return [first or rest, *[rest] * (rows - 1)]


def refine(run: Search) -> None:
    """Shorten one micro-batch at a time, by less and less, while something is gained."""
    step = 0.04
    while step > 1e-3 and not run.exhausted:
        gained = False
        for row in range(len(run.best)):
            for other in range(len(run.best)):
                if run.exhausted:
                    return
                spans = [row_span(run, number) for number in range(len(run.best))]
                spans[row] *= 1 - step
                if other != row:
                    spans[other] *= 1 + step / 2
                before = run.value
                run.try_spans(spans)
                gained |= run.value < before
        step = step if gained else step / 2


def row_span(run: Search, row: int) -> float:
    """How long a micro-batch of the best packing lasts, without the constants of its lines."""
    problem = run.problem
    return max(
        (problem.seconds(group.degree, group.items) - problem.lines[group.degree].const for group in run.best[row]),
        default=0.0,
    )
