"""The one layout that a job fixes, with what it leaves unsaid: degrees of 1, and the usual of states."""

from planner.errors import InputError
from planner.specs.inputs import Inputs
from planner.specs.job import StaticLayout
from planner.specs.layers import experts_of
from planner.strategies.static.choice import RECOMPUTE, Choice, Trained
from planner.strategies.static.screen import fixed_of, problem_of


def fixed_choice(inputs: Inputs, runs: bool = True) -> Choice:
    """The layout. Raises InputError when it does not come out even, nor, if it is to run, does the batch over it."""
    fixed, usual = fixed_of(inputs), inputs.job.layout
    choice = Choice(
        tp=fixed.tp or 1,
        cp=fixed.cp or 1,
        pp=fixed.pp or 1,
        vpp=fixed.vpp or 1,
        ep=fixed.ep or 1,
        etp=fixed.etp or 1,
        zero=usual.zero_used if fixed.zero is None else fixed.zero,
        recompute=RECOMPUTE.index(fixed.recompute or usual.recompute_used),
        micro_batch=fixed.micro_batch or 1,
    )
    trained = problem_of(inputs).trained
    wrong = uneven(choice, trained) or (uneven_batch(choice, trained, fixed) if runs else None)
    if wrong:
        message, fix = wrong
        raise InputError(message, where=f"{inputs.sources['job']} (fix.layouts.{inputs.module})", fix=fix)
    return choice


def uneven(choice: Choice, trained: Trained) -> tuple[str, str] | None:
    """What of the ranks, the heads, the layers or the experts is not shared out; and what would be."""
    module, ranks, moe = trained.module, trained.ranks, experts_of(trained.module)
    model = choice.tp * choice.cp * choice.pp
    if ranks % model:
        return f"tp · cp · pp = {model} does not divide {ranks} ranks", "degrees whose product does"
    if module.heads % choice.tp:
        return f"{module.heads} heads do not spread over tp = {choice.tp}", "a tp that divides the heads"
    if choice.vpp > 1 and choice.pp == 1:
        return f"vpp = {choice.vpp} is of pipelines, and pp is 1", "vpp: 1, or a larger pp"
    if choice.pp * choice.vpp > module.layers:
        return f"pp · vpp = {choice.pp * choice.vpp} is more than {module.layers} layers", "fewer chunks"
    if choice.ep * choice.etp == 1:
        return None
    if moe is None:
        return f"ep · etp = {choice.ep * choice.etp}, and the model has no experts", "ep: 1, etp: 1"
    if moe.experts % choice.ep or moe.ffn % choice.etp:
        return (
            f"{moe.experts} experts do not spread over ep = {choice.ep}, etp = {choice.etp}",
            "degrees that divide them",
        )
    if ranks // choice.pp % (choice.ep * choice.etp):
        message = f"ep · etp = {choice.ep * choice.etp} does not divide the {ranks // choice.pp} ranks of a stage"
        return message, "degrees whose product does"
    return None


def uneven_batch(choice: Choice, trained: Trained, fixed: StaticLayout) -> tuple[str, str] | None:
    """Equal sequences come out even over replicas and micro-batches."""
    dp, count = choice.dp(trained.ranks), len(trained.sizes)
    at_once = dp * choice.micro_batch
    if trained.equal and count % at_once:
        return f"{count} sequences do not come out even over dp · micro-batch = {at_once}", "batch_rows that do"
    if trained.equal and choice.vpp > 1 and count // at_once % choice.pp:
        return f"interleaving needs a multiple of pp = {choice.pp} micro-batches, not {count // at_once}", "vpp: 1"
    if fixed.schedule == "interleaved" and choice.vpp == 1 < choice.pp:
        return "interleaving needs several chunks of layers a rank, and vpp is 1", "vpp: 2, or schedule: 1f1b"
    return None
