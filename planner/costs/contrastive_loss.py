"""The seconds of a contrastive loss over the samples of a task (CLIP, arXiv 2103.00020), on the ranks that have them.

Each rank gathers the features of all samples, (samples, width) of both modules, compares its own with them both ways,
and has the gradients of its own back by a reduce-scatter of all: two exchanges of each module's features, and products
of (samples of a rank, width) with (width, samples), once forward and twice backward. Features are sent in no less
than float32.
"""

from math import ceil

from planner.costs.compute.layer_work import Matmul
from planner.costs.cost_lines import Cost
from planner.costs.network_model import group_of_ranks
from planner.costs.shared_prices import ModulePricing
from planner.plan.plan_file import Layout
from planner.plan.task import Task
from planner.specs.shapes import DTYPE_BYTES

MODULES = 2  # whose features are compared
PASSES = 3  # a forward, and as much again for the gradient of each factor


def loss_cost(basis: ModulePricing, task: Task, layout: Layout) -> Cost:
    """Seconds of the loss of a task, whose tokens are its samples in the step."""
    samples, width, group = task.tokens, basis.spec.feature_width, group_of_ranks(basis.cluster, task.ranks)
    network, exchanged = basis.machine.network, 0.0
    if len(task.ranks) > 1:
        features = float(MODULES * samples * width * max(DTYPE_BYTES["float32"], DTYPE_BYTES[layout.dtype]))
        gathered, returned = (each(features, group, MODULES) for each in (network.all_gather, network.reduce_scatter))
        exchanged = float(gathered + returned)
    product = Matmul(ceil(samples / len(task.ranks)), samples, width, count=MODULES, has_weights=False)
    compared = PASSES * float(basis.machine.matmul(product, layout.dtype))
    source = basis.compute_cost(0.0)
    whole = (exchanged + compared) * basis.straggler_factor
    return Cost(whole, "analytic", source.spread, exchanged * basis.straggler_factor)
