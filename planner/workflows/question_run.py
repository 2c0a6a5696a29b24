"""The whole run of a question: its tokens, budget and deadline, and the pool that its GPUs are chosen from."""

import re
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.gpu_clusters import asked_device
from planner.specs.hardware.pool import Pool, PoolKind
from planner.specs.job import Job, Limits
from planner.specs.named_files import device_kind
from planner.specs.run_length import Run
from planner.units import parse_scaled

POOLED = re.compile(r"([1-9]\d{0,5})\s*[x×*]\s*([^@]+)(?:@(.+))?", re.ASCII)
FIX = "such as 4096xh100,512xa100, at a price of one's own 512xa100@1.80"
# Of a run, where a question says none: tokens of a step, as Llama 2 was trained (arXiv 2307.09288), and of a sequence
USUAL_STEP_TOKENS, USUAL_SEQUENCE = 2**22, 8192
DOLLARS = "US dollars, such as 2e6, 2M or $2,000,000"


@dataclass(frozen=True, slots=True)
class RunQuestion:
    """How long a run is, what it may take, and of what; texts as they are typed, empty where nothing is said."""

    tokens: str = ""
    budget: str = ""
    days: float | None = None
    pool: str = ""

    @property
    def run(self) -> Run | None:
        """The run; None: a question about one step. Raises InputError for a limit of none."""
        if self.tokens:
            return Run(tokens=typed_number(self.tokens, "--tokens"))
        given = {"--budget": self.budget, "--days": self.days is not None, "--pool": self.pool}
        named = next((option for option, value in given.items() if value), None)
        if named:
            raise InputError("this is of a whole run, and nobody says how long it is", where=named, fix="--tokens 1T")
        return None

    @property
    def limits(self) -> Limits:
        """What the run may take. Raises InputError."""
        usd = typed_number(self.budget, "--budget", DOLLARS) if self.budget else None
        if self.days is not None and not 0.0 < self.days < 1e6:
            raise InputError(f"{self.days:g} days are no time to train in", where="--days", fix="such as --days 30")
        return Limits(usd=usd, days=self.days)

    @property
    def objective(self) -> str:
        """What is best: of a deadline without a budget the cheapest, else the soonest."""
        return "dollars" if self.days is not None and not self.budget else "step_seconds"


ONE_STEP = RunQuestion()


def with_run(job: Job, asked: RunQuestion) -> Job:
    """The job of a whole run, where a question asks about one. Raises InputError."""
    if asked.run is None:
        return job
    return with_fields(job, run=asked.run, limits=asked.limits, objective=asked.objective)


def typed_number(text: str, option: str, what: str = "") -> float:
    """A number of an option. Raises InputError."""
    try:
        return parse_scaled(text)
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=option, fix=what or fix) from error


def asked_pool(text: str) -> Pool:
    """The pool of an option: up to so many GPUs of each kind, at its price or the device's; joined by `+`, a job may
    have several at once. Raises InputError.
    """
    kinds = tuple(pool_kind(part.strip()) for part in re.split("[,+]", text))
    source = "typed; prices: of the devices, or typed"
    return Pool(format=Pool.FORMAT, name="pool", pool=kinds, mixed="+" in text, source=source)


def pool_kind(text: str) -> PoolKind:
    """One kind of a pool. Raises InputError."""
    match = POOLED.fullmatch(text)
    if not match:
        raise InputError(f"`{text[:40]}` is no number of GPUs of a kind", where="--pool", fix=FIX)
    given: dict[str, Any] = {"usd_per_hour": typed_number(match[3], "--pool", FIX)} if match[3] else {}
    named = match[2].strip() if "/" in match[2] else match[2].strip().lower()
    device_kind(asked_device(named), where="--pool")
    return PoolKind(kind=named, max=int(match[1]), **given)


def step_sequences(seq: int | None) -> int:
    """Sequences of a step of a run."""
    return max(1, USUAL_STEP_TOKENS // (seq or USUAL_SEQUENCE))
