"""The one layout that a job fixes, with defaults for what it leaves out: degrees of 1, and the usual states."""

from dataclasses import replace

from planner.errors import InputError
from planner.layouts import RECOMPUTE, RECOMPUTE_BY_RANGES, SEARCHED_FIELDS, TrainingSetup, layout_of, layout_problem
from planner.plan.launchable.launch_refusals import require_launchable
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import rank_kinds
from planner.specs.inputs import Inputs
from planner.specs.layers import Module


def fixed_layout(inputs: Inputs, runs: bool = True, ranks: Ranks | None = None) -> Layout:
    """The layout on these ranks, or on all. Raises InputError when its degrees do not divide evenly, or, if it is to
    run, the batch does not; and when the job's software cannot launch it.
    """
    trained = layout_problem(inputs).trained
    trained = replace(trained, ranks=len(ranks)) if ranks else trained
    fixed = trained.fixed
    degrees = {name: getattr(fixed, name) or 1 for name in SEARCHED_FIELDS if name not in ("zero", "recompute")}
    how = fixed.recompute or "none"
    recompute = RECOMPUTE_BY_RANGES if isinstance(how, dict) else RECOMPUTE.index(how)
    numbers = {**degrees, "zero": 3 if fixed.zero is None else fixed.zero, "recompute": recompute}
    wrong = uneven_degrees(numbers, trained)
    if not wrong and numbers["cp"] % (fixed.ulysses or 1):
        wrong = f"ulysses {fixed.ulysses} does not divide cp {numbers['cp']}", "a divisor, or 1 for a ring"
    layout = None if wrong else layout_of(trained, numbers)
    if layout and runs:
        unlike = len(rank_kinds(inputs.cluster)) > 1 and inputs.software.knobs.groups == "any"
        wrong = uneven_batch(layout, trained, len(inputs.model.modules) == 1 and not unlike)
    if wrong or layout is None:
        message, fix = wrong or ("", "")
        raise InputError(message, where=f"{inputs.file} (fix.layouts.{inputs.module})", fix=fix)
    layout = with_fields(layout, ranks=ranks) if ranks else layout
    require_launchable(inputs, layout, f"fix.layouts.{inputs.module}", runs=runs)
    return layout


def uneven_degrees(numbers: dict[str, int], trained: TrainingSetup) -> tuple[str, str] | None:
    """The message about ranks, heads, layers or experts that the degrees do not divide, and its fix; None if even."""
    module, ranks, fixed = trained.module, trained.ranks, trained.fixed
    tp, cp, pp, vpp = (numbers[name] for name in ("tp", "cp", "pp", "vpp"))
    model, copies = tp * cp * pp, fixed.replica or 1
    if ranks % (model * copies):
        name = "tp · cp · pp" + (" · replica" if copies > 1 else "")
        return f"{name} = {model * copies} does not divide {ranks} ranks", "degrees whose product does"
    if fixed.dp and fixed.dp * model * copies != ranks:
        product = f"tp {tp} · cp {cp} · pp {pp} · dp {fixed.dp}" + (f" · replica {copies}" if copies > 1 else "")
        return f"{product} makes {fixed.dp * model * copies} ranks, and there are {ranks}", "leave dp out"
    if module.heads % (tp * (fixed.ulysses or 1)):
        name = f"tp = {tp}" + (f", ulysses = {fixed.ulysses}" if (fixed.ulysses or 1) > 1 else "")
        return f"{module.heads} heads do not divide over {name}", "a tp that divides the heads"
    whole = unsupported_sharding(module, tp, cp, pp)
    if whole:
        return whole
    if vpp > 1 and pp == 1:
        return f"vpp = {vpp} needs a pipeline, and pp is 1", "vpp: 1, or a larger pp"
    if pp * vpp > module.layers:
        return f"pp · vpp = {pp * vpp} is more than {module.layers} layers", "fewer chunks"
    if fixed.stages and len(fixed.stages) != pp * vpp:
        return f"{len(fixed.stages)} stages for pp · vpp = {pp * vpp}", "layers of each stage, or of each chunk"
    return uneven_experts(numbers, trained)


def unsupported_sharding(module: Module, tp: int, cp: int, pp: int) -> tuple[str, str] | None:
    """The message about what of a module cannot be sharded so, and its fix; None if it can."""
    scanned = module.scan_groups
    if scanned % tp:
        groups = "one group" if scanned == 1 else f"{scanned} groups"
        return (
            f"{groups} of heads that scan, as in state spaces, cannot be sharded over tp = {tp}",
            "a tp that divides the groups",
        )
    if module.unshardable_reason and cp > 1:
        return f"{module.unshardable_reason}, and cp = {cp} shards them", "cp: 1"
    if module.unpipelined_reason and pp > 1:
        return f"{module.unpipelined_reason}, and pp = {pp}", "pp: 1"
    return None


def uneven_experts(numbers: dict[str, int], trained: TrainingSetup) -> tuple[str, str] | None:
    """The message about experts that do not divide over the ranks of a stage, and its fix; None if they do."""
    ep, etp, held, moe = numbers["ep"], numbers["etp"], trained.ranks // numbers["pp"], trained.module.routed_experts
    if ep * etp == 1:
        return None
    if moe is None:
        return f"ep · etp = {ep * etp}, and the model has no experts", "ep: 1, etp: 1"
    if moe.experts % ep or moe.ffn % etp:
        return f"{moe.experts} experts do not divide over ep = {ep}, etp = {etp}", "degrees that divide them"
    if held % (ep * etp):
        return f"ep · etp = {ep * etp} does not divide the {held} ranks of a stage", "degrees whose product does"
    return None


def uneven_batch(layout: Layout, trained: TrainingSetup, alone: bool) -> tuple[str, str] | None:
    """The message about equal sequences that do not divide over replicas and micro-batches, and its fix; `alone`: there
    is no other module, by whose items samples differ whatever their own lengths, nor ranks of other kinds, which take
    other shares.
    """
    count, at_once = len(trained.sizes), layout.dp * layout.replica * layout.micro_batch
    equal = trained.equal_lengths and alone
    if equal and count % at_once:
        return f"{count} sequences are no multiple of dp · micro-batch = {at_once}", "batch_rows that are"
    if equal and layout.vpp > 1 and count // at_once % layout.pp:
        return f"interleaving needs a multiple of pp = {layout.pp} micro-batches, not {count // at_once}", "vpp: 1"
    if trained.fixed.schedule == "interleaved" and layout.vpp == 1 < layout.pp:
        return "interleaving needs several chunks of layers per rank, and vpp is 1", "vpp: 2, or schedule: 1f1b"
    return None
