"""How much longer a run takes than its steps: failures, spot nodes that are taken away, and checkpoints against both.

Failures come at random, one every M seconds in the mean. Work of τ seconds and the C seconds of its checkpoint are lost
and done again, after R seconds, until they pass. As many times its steps the whole run takes:

    (M / τ) · e^(R/M) · (e^((τ + C)/M) − 1),    τ = √(2CM)·(1 + √(C/2M)/3 + C/18M) − C, or M where C ≥ 2M

Both are Daly's (A higher order estimate of the optimum checkpoint interval for restart dumps, 2006,
doi 10.1016/j.future.2004.11.016).
"""

from dataclasses import dataclass
from math import exp, expm1, inf, sqrt

from planner.plan.node_storage import storage_of
from planner.specs.inputs import Inputs
from planner.specs.offers import OfferedCluster
from planner.specs.run_length import HOUR, Run
from planner.specs.trained_parameters import trained_parameters
from planner.units import GB

CHECKPOINT_BYTES = 14.0  # of a trained parameter: its weight in 16 bits, a float32 copy, and Adam's two moments
MOST = 500.0  # of an exponent: beyond, no run ends


@dataclass(frozen=True, slots=True)
class Downtime:
    """What a run loses on one choice of a pool."""

    checkpoint_s: float
    restart_s: float
    failure_s: float  # from one failure to the next, in the mean
    spot_s: float = inf  # from one node that is taken away to the next

    @property
    def between_s(self) -> float:
        """Seconds from one interruption to the next, of either kind."""
        return 1.0 / (1.0 / self.failure_s + 1.0 / self.spot_s)

    @property
    def every_s(self) -> float:
        """Seconds of training from one checkpoint to the next."""
        return interval(self.checkpoint_s, self.between_s)

    @property
    def factor(self) -> float:
        """Times the seconds of all steps that the run takes."""
        return slowdown(self.checkpoint_s, self.restart_s, self.between_s)

    @property
    def share(self) -> float:
        """Of the run in which nothing is trained that stays."""
        return 1.0 - 1.0 / self.factor

    @property
    def spot_share(self) -> float:
        """Of the run, what is lost because nodes are taken away."""
        return self.share - (1.0 - 1.0 / slowdown(self.checkpoint_s, self.restart_s, self.failure_s))


def downtime_of(offered: OfferedCluster, inputs: Inputs, run: Run) -> Downtime:
    """What a run on one choice loses."""
    nodes = sum(-(-ranks.count // ranks.per_node) for ranks in offered.cluster.ranks)
    spot = inf if offered.node_hours is None else offered.node_hours * HOUR / nodes
    written = checkpoint_seconds(inputs, nodes) if run.checkpoint_s is None else run.checkpoint_s
    return Downtime(written, run.restart_s, run.gpu_hours_per_failure * HOUR / offered.cluster.size, spot)


def checkpoint_seconds(inputs: Inputs, nodes: int) -> float:
    """Seconds in which all nodes write a checkpoint together, each its share to its own disk."""
    storage = storage_of(inputs.cluster)
    count = sum(trained_parameters(module) for module in inputs.model.modules.values())
    return CHECKPOINT_BYTES * count / (nodes * storage.disk_gb_per_s * GB)


def interval(checkpoint: float, between: float) -> float:
    """The best seconds from one checkpoint to the next; all where writing them takes no time."""
    if checkpoint >= 2.0 * between:
        return between
    ratio = checkpoint / (2.0 * between)
    return sqrt(2.0 * checkpoint * between) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - checkpoint


def slowdown(checkpoint: float, restart: float, between: float) -> float:
    """Times the seconds of all steps that a run takes which is interrupted every `between` seconds; infinite where it
    does not end.
    """
    every = interval(checkpoint, between)
    if (every + checkpoint + restart) / between > MOST:
        return inf
    lost = exp(restart / between)
    return lost if not every else between / every * lost * expm1((every + checkpoint) / between)
