"""Jobs: model, cluster, workload, objective, limits, and decisions that are already fixed."""

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import PERCENTAGE, Amount, Count, Index, Name, Positive, RankCount, Share, Spec, with_fields
from planner.specs.layers.trained import Trained
from planner.specs.parallelism import Parallelism, Sync
from planner.specs.run_length import Run
from planner.specs.service import Service
from planner.specs.tables import JobTables
from planner.specs.workload.expert_counts import ExpertCounts
from planner.specs.workload.length_sources import Workload
from planner.specs.workload.loss_weighting import LossWeighting

LENGTH_NAMES = (  # of other programs
    *("sequence_length", "seq_length", "seq_len", "seqlen", "seq", "max_seq_len", "max_sequence_length"),
    *("max_position_embeddings", "context_length"),
)
LENGTH_FIX = "lengths are said as workload: {lengths: 8192, batch_rows: 512}, or from a file or a distribution"
BATCH_NAMES = ("batch_size", "global_batch_size", "gbs", "batch")
BATCH_FIX = "the sequences of a step are said as workload: {batch_rows: 512}"

ROLLOUT_NAMES = ("rollout", "rollouts", "generator", "generation", "reward", "critic", "actor", "rl", "ppo", "grpo")
ROLLOUT_FIX = (
    "planner plans steps whose samples are known when they begin: of a rollout, or of what is generated behind an LLM,"
    " no plan knows the sizes before it has run; give the samples that a step trains on, and a reference as a module"
)

BY_HAND = "by_hand"  # in place of a strategy: layouts as they are given
USUAL_STRATEGY = "sequence_groups"

USUAL_DTYPE = "bf16"  # where a job gives none
USUAL_OBJECTIVE = "step_seconds"  # in which strategies state outcomes
USUAL_WITHIN = 0.02  # far inside every interval
MOST_WITHIN = 0.2  # beyond which a layout is no longer one that predictions cannot tell from another
Within = Annotated[float, msgspec.Meta(ge=0, le=MOST_WITHIN, extra_json_schema=PERCENTAGE)]
Probability = Annotated[float, msgspec.Meta(gt=0, le=1, extra_json_schema=PERCENTAGE)]


class Limits(Spec):
    """Bounds that the plan must keep."""

    tokens_per_rank: Count | None = None  # in one micro-batch; replaces the memory model if given
    # By module, in one micro-batch: tokens, patches or frames, as it reads them. Samples are packed up to these
    inputs_per_rank: dict[Name, Count] = {}
    memory_margin: Share = 0.06  # share of the device's memory that is kept free
    oom_chance: Probability = 0.05  # probability of running out of memory, at most
    # Of the whole run, of which `run` says the tokens: what is chosen of a pool keeps them
    usd: Positive | None = None
    days: Positive | None = None  # until it is done
    usd_per_hour: Positive | None = None  # of all GPUs together
    gpus: RankCount | None = None

    def inputs_of(self, module: str, units_per_token: int) -> int | None:
        """Inputs of a module, in its own unit, that a rank may hold in one micro-batch; None: as many as fit."""
        own = self.inputs_per_rank.get(module)
        return own if own is not None or self.tokens_per_rank is None else self.tokens_per_rank * units_per_token


class FixedItem(Spec):
    """The sequence-parallel degree that an item must have."""

    degree: RankCount


class Fix(Spec):
    """Decisions taken before solving, which a strategy keeps."""

    items: dict[Index, FixedItem] = {}
    layouts: dict[Name, Parallelism] = {}  # by module


class PerBatch(Spec):
    """Each batch is planned while earlier ones train."""

    look_ahead: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4  # batches that are planned in advance
    # of planning a batch, after which its plan is not improved; None: limited by effort alone
    deadline_ms: Amount | None = None
    wait: bool = False  # no step starts before its planning has ended: without a deadline, every run trains the same


class Job(Spec):
    """A job file, `planner.job/1`; shipped ones are in `profiles/jobs`."""

    FORMAT: ClassVar[str] = "planner.job/1"
    OTHER_NAMES: ClassVar[dict[str, str]] = {
        **dict.fromkeys(LENGTH_NAMES, LENGTH_FIX),
        **dict.fromkeys(BATCH_NAMES, BATCH_FIX),
        **dict.fromkeys(ROLLOUT_NAMES, ROLLOUT_FIX),
    }
    format: str
    name: str
    model: str  # a shipped model, or a path
    cluster: str  # a shipped cluster, or a path
    workload: Workload  # lengths of samples, and how many a step has
    software: str = "planner"  # the training framework: a shipped one, or a path; any: one with every knob
    profile: str = "auto"  # auto: the one measured here, else the shipped one of the device; or a name, or a path
    # What is decided, and how: a name of `planner list strategies`, or best. Left out: sequence_groups; or, of several
    # modules with a layout each under `fix`, these as they are
    strategy: str = ""
    loss: LossWeighting = "token"  # what counts alike in the loss: each target token, or each sample; or in between
    objective: str = USUAL_OBJECTIVE  # what is optimised: a name of costs/objective.py
    # Of static layouts whose step takes no longer than the quickest by more than this share the plainest is planned
    within: Within = USUAL_WITHIN
    layout: Parallelism = Parallelism()  # of every module: fields that are given hold, a search decides the others
    degrees: tuple[RankCount, ...] = ()  # allowed sequence-parallel degrees; empty: powers of two that divide the heads
    sync: Sync = "micro_batch"  # when ranks wait for each other
    planning: Literal["ahead", "per_batch"] | PerBatch = "ahead"  # when batches after the first are planned
    expert_counts: dict[Name, ExpertCounts] = {}  # by module: tokens that each expert got; left out: an assumed load
    trained: dict[Name, Trained] = {}  # by module: all (left out), none, projector, or {lora: 16} adapters of that rank
    tables: JobTables | None = None  # embedding tables beside the model, which is the dense part
    loader: str = ""  # path of a file of loader stages, which `planner profile --loader` measures; empty: not counted
    limits: Limits = Limits()  # what a rank may hold, and what the whole run may take
    service: Service | None = None  # what is promised to those who ask the model, where it is served
    run: Run | None = None  # how long the job trains: with it, dollars and days are of the whole run
    fix: Fix = Fix()  # what is decided already

    def __post_init__(self) -> None:
        if self.layout.ranks is not None:
            raise ValueError("`layout` holds for every module, and its ranks do not | say ranks under fix.layouts")
        if self.layout.features is not None:
            message = "`layout` holds for every module, and `features` for one that feeds others"
            raise ValueError(f"{message} | say features under fix.layouts")

    def with_strategy(self, modules: Collection[str]) -> "Job":
        """The job of a model of these modules, with a strategy where it names none."""
        as_fixed = len(modules) > 1 and {*modules} <= {*self.fix.layouts}
        return with_fields(self, strategy=self.strategy or (BY_HAND if as_fixed else USUAL_STRATEGY))

    @property
    def zero(self) -> int:
        """The ZeRO stage of strategies whose groups change with every micro-batch: 3 where the job gives none."""
        return 3 if self.layout.zero is None else self.layout.zero

    @property
    def per_batch(self) -> PerBatch | None:
        """The options of planning during training; None where all batches are planned ahead."""
        if isinstance(self.planning, PerBatch):
            return self.planning
        return PerBatch() if self.planning == "per_batch" else None
