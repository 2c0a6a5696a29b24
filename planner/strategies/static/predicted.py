"""What is predicted of one static layout: seconds and where they go, what they amount to, memory, and on whose word."""

from dataclasses import asdict, dataclass
from math import exp

from planner.costs.static.assumed import spread_of
from planner.costs.static.footprint import Footprint
from planner.specs.inputs import Inputs
from planner.specs.kinds import entry
from planner.specs.layers import windowed
from planner.specs.model import Module
from planner.specs.shapes import attention_flops, end_flops, layer_flops
from planner.strategies.static.best import simulated
from planner.strategies.static.fixed import fixed_choice
from planner.strategies.static.screen import Problem, chance_of, footprint_of, parts_of, problem_of

PASSES = 3.0  # forward, and backward with the gradients of activations and of weights


@dataclass(frozen=True, slots=True)
class Predicted:
    """One step. `parts` are the closed form's, and add up to `closed_seconds`."""

    layout: str
    ranks: int
    seconds: float  # simulated, with the real sequences
    spread: float  # the 80 % interval is seconds·e^±spread
    closed_seconds: float
    parts: dict[str, float]
    tokens: int
    flops: float  # of the model, without what is computed again
    mfu: float  # of the device's peak in the layout's precision
    stage: int  # the fullest
    memory: Footprint
    chance: float  # of running out of memory
    allowed: float  # bytes that a rank may use
    sources: dict[str, str]

    @property
    def interval(self) -> tuple[float, float]:
        return self.seconds * exp(-self.spread), self.seconds * exp(self.spread)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def predicted(inputs: Inputs) -> Predicted:
    """Of the layout that the job fixes. Raises InputError."""
    problem, choice = problem_of(inputs), fixed_choice(inputs)
    trained, closed = problem.trained, parts_of(problem, choice)
    seconds = simulated(inputs, problem, choice).seconds
    flops = model_flops(trained.module, trained.sizes)
    stage, fullest = fullest_stage(problem, [footprint_of(problem, choice, stage) for stage in range(choice.pp)])
    return Predicted(
        layout=choice.text(trained.ranks),
        ranks=trained.ranks,
        seconds=seconds,
        spread=spread_of(inputs.software_spread, inputs.rates.get(inputs.cluster.ranks[0].kind)),
        closed_seconds=float(closed.seconds),
        parts={name: float(value) for name, value in asdict(closed).items()},
        tokens=sum(trained.sizes),
        flops=flops,
        mfu=flops / (seconds * trained.ranks * problem.machine.peak(trained.dtype)),
        stage=stage,
        memory=fullest,
        chance=chance_of(problem, fullest),
        allowed=problem.allowed,
        sources=sources_of(inputs),
    )


def fullest_stage(problem: Problem, taken: list[Footprint]) -> tuple[int, Footprint]:
    stage = max(range(len(taken)), key=lambda at: (float(taken[at].total), -at))
    return stage, taken[stage]


def sources_of(inputs: Inputs) -> dict[str, str]:
    """Where each number comes from."""
    kind = inputs.cluster.ranks[0].kind
    rates = inputs.rates.get(kind)
    kernels = f"{rates.source} ({kind})" if rates else unrated(inputs, kind)
    network = f"{rates.source if rates and rates.link_share else 'analytic'}, of {inputs.cluster.name}'s levels"
    software = f"{inputs.job.software}'s traits"
    return {"compute": kernels, "exchange": network, "overlap, overhead": software, "memory": f"exact; {software}"}


def unrated(inputs: Inputs, kind: str) -> str:
    """What compute rests on where no kernel of the device was timed, though the model's modules may have been."""
    said = f"analytic: nobody timed kernels of {kind}"
    if not entry(inputs.profile.modules, f"{inputs.model.name}/{inputs.module}", kind):
        return said
    return f"{said}; what was measured of {inputs.module} prices sequence strategies and plans by hand"


def model_flops(module: Module, sizes: tuple[int, ...]) -> float:
    """Of a step: both passes over all tokens, attention with its windows."""
    per_token = module.layers * layer_flops(module)[1] + end_flops(module)
    windows = {windowed(module, layer): layer for layer in range(module.layers)}
    counts = {window: 0 for window in windows}
    for layer in range(module.layers):
        counts[windowed(module, layer)] += 1
    attention = 0.0
    for size in set(sizes):
        each = sum(count * attention_flops(module, windows[window], size) for window, count in counts.items())
        attention += sizes.count(size) * each
    return PASSES * (per_token * sum(sizes) + attention)
