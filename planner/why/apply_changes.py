"""Applies `KEY=VALUE` changes to a plan's problem, and the further changes that they require."""

from dataclasses import replace

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Sync
from planner.strategies import STRATEGIES, decides_layouts, unsupported
from planner.why.change_setters import SETTERS, fix_item

# Applied first: the other keys are checked against them, or say more exactly what stages imply
APPLIED_FIRST = ("ranks", "nodes", "tokens_per_rank", "stages")


def apply_changes(inputs: Inputs, words: tuple[str, ...]) -> Inputs:
    """The problem with every `KEY=VALUE` applied. Raises InputError that names what is allowed.

    What excludes a field that another change is yet to alter waits for it.
    """
    require_changes(words)
    left = sorted(words, key=lambda word: not word.startswith(APPLIED_FIRST))
    while left:
        refused: dict[str, InputError] = {}
        for word in left:
            try:
                inputs = apply_change(inputs, word)
            except InputError as error:
                if error.where:
                    raise
                refused[word] = error
        if len(refused) == len(left):
            raise InputError(refused[left[0]].message, where=left[0], fix=refused[left[0]].fix)
        left = [*refused]
    return inputs


def require_changes(words: tuple[str, ...]) -> None:
    """Raises InputError where a word is no `KEY=VALUE`, or a key is given twice."""
    given: set[str] = set()
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value:
            raise InputError(f"`{word}` is not a change", where=word, fix="write it as KEY=VALUE, like zero=2")
        if key in given:
            raise InputError(f"`{key}` is given twice", where=word, fix="give it once")
        given.add(key)


def apply_change(inputs: Inputs, word: str) -> Inputs:
    """The problem with one `KEY=VALUE` applied. Raises InputError, without a place where it excludes another field."""
    key, _, value = (part.strip() for part in word.partition("="))
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
