"""Applies `MODULE.FIELD=VALUE` changes to the problem of a plan of several modules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.plan.descriptions import flow_text
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.job import Limits
from planner.specs.parallelism import DEFAULT_RANK_ORDER, Parallelism, decided_fields
from planner.strategies.static import with_asked
from planner.why.change_setters import change_job, set_limit, set_margin
from planner.why.layout_words import parsed_wish

LIMITS = ("tokens_per_rank", "memory_margin")
PACKED = "inputs_per_rank"  # of a module


@dataclass(frozen=True, slots=True)
class JointChange:
    """The problem with something more fixed, and what exactly is asked for of each module."""

    inputs: Inputs
    asked: dict[str, Parallelism]  # module → fields that are asked for


def changed_problem(inputs: Inputs, words: Sequence[str]) -> JointChange:
    """The problem with every `KEY=VALUE` applied. Raises InputError for words that are no changes."""
    asked: dict[str, Parallelism] = {}
    whole: set[str] = set()
    given: set[str] = set()
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not value:
            raise InputError(f"`{word}` is not a change", where=word, fix="write it as KEY=VALUE, like vision.tp=2")
        if key in given:
            raise InputError(f"`{key}` is given twice", where=word, fix="give it once")
        given.add(key)
        module, _, field = key.partition(".")
        if key in LIMITS:
            inputs = (set_limit if key == "tokens_per_rank" else set_margin)(inputs, key, value)
        elif module not in inputs.model.modules:
            raise unknown_key(inputs, key, word)
        elif field == PACKED:
            inputs = with_pack_limit(inputs, module, value, word)
        else:
            wish = parsed_wish(module, field, value, word)
            whole |= set() if field else {module}
            asked[module] = with_fields(asked.get(module, Parallelism()), **decided_fields(wish))
    return JointChange(with_asked(inputs, asked, whole), asked)


def unknown_key(inputs: Inputs, key: str, word: str) -> InputError:
    """The error for a key that names no module."""
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


def followed(change: JointChange, before: Mapping[str, Layout], after: Mapping[str, Layout]) -> tuple[str, ...]:
    """What else of the layouts changes, as `KEY=VALUE` that says it."""
    found = []
    for name, layout in after.items():
        asked = decided_fields(change.asked.get(name, Parallelism()))
        for field in Parallelism.__struct_fields__:
            value = getattr(layout, field)
            told = field in asked or value == getattr(before[name], field)
            plain = field == "rank_order" and value == DEFAULT_RANK_ORDER
            if not told and not plain and value is not None:
                found.append(f"{name}.{field}={flow_text(value)}")
    return tuple(found)
