"""How long a job trains, and what else than training takes time: failures, checkpoints, restarts."""

from planner.specs.base import Amount, Positive, Spec

DAY, HOUR = 86400.0, 3600.0  # seconds


class Run(Spec, kw_only=True):
    """A whole run, of which a plan is one step."""

    tokens: Positive  # that it trains on
    # Hours of all GPUs together from one failure to the next. Llama 3: 419 unexpected interruptions in 54 days on
    # 16,384 H100 (arXiv 2407.21783, section 3.3.4)
    gpu_hours_per_failure: Positive = 50_700.0
    restart_s: Amount = 600.0  # from a failure until training goes on; assumed
    checkpoint_s: Amount | None = None  # that training stands still for one; None: as its nodes' disks take to write it
