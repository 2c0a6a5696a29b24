"""Applies `KEY=VALUE` changes to a plan's problem, `MODULE.FIELD=VALUE` where it has several modules, and the further
changes that they require.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.errors import InputError
from planner.plan.descriptions import flow_text
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.job import Limits
from planner.specs.parallelism import DEFAULT_RANK_ORDER, Parallelism, Sync, decided_fields
from planner.strategies import STRATEGIES, decides_layouts, unsupported
from planner.strategies.static import with_asked
from planner.why.change_setters import SETTERS, change_job, fix_item, parsed_wish

LIMITS = ("tokens_per_rank", "memory_margin")  # of the plan, whatever its modules
PACKED = "inputs_per_rank"  # of a module
# Applied first: the other keys are checked against them, or say more exactly what stages imply
APPLIED_FIRST = ("ranks", "nodes", "tokens_per_rank", "stages")


def apply_changes(inputs: Inputs, words: tuple[str, ...]) -> Inputs:
    """The problem with every `KEY=VALUE` applied. Raises InputError that names what is allowed.

    What excludes a field that another change is yet to alter waits for it.
    """
    key_values = {word: (key, value) for word, key, value in read_changes(words, "zero=2")}
    left = sorted(words, key=lambda word: not word.startswith(APPLIED_FIRST))
    while left:
        refused: dict[str, InputError] = {}
        for word in left:
            try:
                inputs = apply_change(inputs, word, *key_values[word])
            except InputError as error:
                if error.where:
                    raise
                refused[word] = error
        if len(refused) == len(left):
            raise InputError(refused[left[0]].message, where=left[0], fix=refused[left[0]].fix)
        left = [*refused]
    return inputs


def read_changes(words: Sequence[str], example: str) -> Iterator[tuple[str, str, str]]:
    """Each word with its key and value. Raises InputError where it is no `KEY=VALUE`, or its key is given twice."""
    given: set[str] = set()
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value:
            raise InputError(f"`{word}` is not a change", where=word, fix=f"write it as KEY=VALUE, like {example}")
        if key in given:
            raise InputError(f"`{key}` is given twice", where=word, fix="give it once")
        given.add(key)
        yield word, key, value


def apply_change(inputs: Inputs, word: str, key: str, value: str) -> Inputs:
    """The problem with one change applied. Raises InputError, without a place where it excludes another field."""
    apply = fix_item if key.startswith("items.") else SETTERS.get(key)
    if apply is None:
        allowed = ", ".join(["items.N.degree", *SETTERS])
        raise InputError(f"there is no key `{key}` to change", where=word, fix=f"one of {allowed}")
    return apply(inputs, key, value)


def apply_implied(inputs: Inputs, words: tuple[str, ...]) -> tuple[Inputs, tuple[str, ...], str]:
    """The problem with all changes that these require, those as `KEY=VALUE`, and why no strategy supports it, if so.

    A strategy that was asked for changes ZeRO stage and synchronisation to those that it needs; one that was not is
    replaced by a strategy that supports the problem.
    """
    given = {word.partition("=")[0].strip() for word in words}
    inputs, follows = align_sync(inputs, given)
    reasons = {name: reason_against(name, inputs) for name in (inputs.job.strategy, *STRATEGIES)}
    if not reasons[inputs.job.strategy]:
        return free_for_search(inputs, given), follows, ""
    if "strategy" not in given:
        able = [name for name, reason in reasons.items() if not reason and not decides_layouts(name)]
        if able:
            return replace(inputs, job=with_fields(inputs.job, strategy=able[0])), (*follows, f"strategy={able[0]}"), ""
    elif not given & {"zero", "sync"}:
        other = switch_sync(inputs)
        if not reason_against(other.job.strategy, other):
            return other, (f"zero={other.job.layout.zero}", f"sync={other.job.sync}"), ""
    return inputs, follows, "; ".join(dict.fromkeys(filter(None, reasons.values())))


def align_sync(inputs: Inputs, given: set[str]) -> tuple[Inputs, tuple[str, ...]]:
    """ZeRO-3 synchronises in every micro-batch, other stages once a step; changes the one that was not given. A search
    of static layouts decides both.
    """
    job = inputs.job
    if decides_layouts(job.strategy):
        return inputs, ()
    needed: Sync = "micro_batch" if job.zero == 3 else "step"
    if job.sync == needed or {"sync", "zero"} <= given:
        return inputs, ()
    if "sync" not in given:
        return replace(inputs, job=with_fields(job, sync=needed)), (f"sync={needed}",)
    zero = 3 if job.sync == "micro_batch" else 2
    return replace(inputs, job=with_fields(job, layout=with_fields(job.layout, zero=zero))), (f"zero={zero}",)


def free_for_search(inputs: Inputs, given: set[str]) -> Inputs:
    """Leave ZeRO stage and recompute to a search of layouts, unless they were asked for or are fixed by the job."""
    if not decides_layouts(inputs.job.strategy):
        return inputs
    open_keys = {key: None for key in ("zero", "recompute") if key not in given}
    return replace(inputs, job=with_fields(inputs.job, layout=with_fields(inputs.job.layout, **open_keys)))


def switch_sync(inputs: Inputs) -> Inputs:
    """Switch between synchronisation in every micro-batch (ZeRO-3) and once a step (ZeRO-2)."""
    job = inputs.job
    zero, sync = (2, "step") if job.sync == "micro_batch" else (3, "micro_batch")
    return replace(inputs, job=with_fields(job, layout=with_fields(job.layout, zero=zero), sync=sync))


def reason_against(name: str, inputs: Inputs) -> str | None:
    """Why a strategy does not support the problem; None if it does."""
    if name not in STRATEGIES:
        return f"no strategy is called `{name}`"
    reason = unsupported(name, inputs)
    return reason.partition(" | ")[0] if reason else None


@dataclass(frozen=True, slots=True)
class AskedChange:
    """The problem of several modules with something more fixed, and what exactly is asked for of each module."""

    inputs: Inputs
    asked: dict[str, Parallelism]  # module → fields that are asked for


def apply_module_changes(inputs: Inputs, words: Sequence[str]) -> AskedChange:
    """The problem of several modules with every change applied. Raises InputError for words that are none."""
    asked: dict[str, Parallelism] = {}
    whole: set[str] = set()
    for word, key, value in read_changes(words, "vision.tp=2"):
        module, _, field = key.partition(".")
        if key in LIMITS:
            inputs = SETTERS[key](inputs, key, value)
        elif module not in inputs.model.modules:
            raise unknown_key(inputs, key, word)
        elif field == PACKED:
            inputs = with_pack_limit(inputs, module, value, word)
        else:
            wish = parsed_wish(module, field, value, word)
            whole |= set() if field else {module}
            asked[module] = with_fields(asked.get(module, Parallelism()), **decided_fields(wish))
    return AskedChange(with_asked(inputs, asked, whole), asked)


def unknown_key(inputs: Inputs, key: str, word: str) -> InputError:
    """The error for a key of a plan of several modules that names none of them, with the keys that there are."""
    names = [*inputs.model.modules]
    if key in Parallelism.__struct_fields__:
        message = f"`{key}` does not say of which module: the plan has {', '.join(names)}"
        return InputError(message, where=word, fix=" or ".join(f"{name}.{word.strip()}" for name in names))
    keys = f"MODULE.FIELD, as {names[0]}.tp, of a layout; MODULE.{PACKED}, {', '.join(LIMITS)}"
    return InputError(f"there is no key `{key}` to change", where=word, fix=f"one of {keys}")


def with_pack_limit(inputs: Inputs, module: str, value: str, word: str) -> Inputs:
    """The problem whose packs hold so many inputs of a module on a rank; `none`: as many as fit."""
    if value != "none" and not (value.isascii() and value.isdigit() and 0 < int(value[:10]) <= 10**9):
        raise InputError(f"`{value}` is no number of inputs", where=word, fix="a whole number, or none")
    limits: Limits = inputs.job.limits
    others = {name: count for name, count in limits.inputs_per_rank.items() if name != module}
    kept = others if value == "none" else {**others, module: int(value)}
    return change_job(inputs, limits=with_fields(limits, inputs_per_rank=kept))


def followed(change: AskedChange, before: Mapping[str, Layout], after: Mapping[str, Layout]) -> tuple[str, ...]:
    """What else of the layouts changes, as `KEY=VALUE` that says it."""
    further = []
    for name, layout in after.items():
        asked = decided_fields(change.asked.get(name, Parallelism()))
        for field in Parallelism.__struct_fields__:
            value = getattr(layout, field)
            told = field in asked or value == getattr(before[name], field)
            plain = field == "rank_order" and value == DEFAULT_RANK_ORDER
            if not told and not plain and value is not None:
                further.append(f"{name}.{field}={flow_text(value)}")
    return tuple(further)
