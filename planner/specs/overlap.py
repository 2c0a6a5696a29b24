"""Which exchanges run beside compute: a switch for each kind, for asking what overlapping them is worth.

off: whoever exchanges does nothing else meanwhile. on: tensors and experts overlap as far as the framework's traits say
that they can; gradients and weights of replicas with all of the compute beside them, whatever the traits say (that is
the most there is to gain); of what stages send nothing changes, since it has a stream of its own already. Left out: as
the plan is priced.
"""

import re

from planner.errors import InputError
from planner.specs.base import Spec, changed
from planner.specs.timing import Timing

WORDS = {"on": True, "off": False}


class Overlap(Spec):
    """Of tensor parallelism, of what stages (and modules) send, of replicas, and of experts."""

    tp: bool | None = None
    pp: bool | None = None
    dp: bool | None = None
    ep: bool | None = None

    @property
    def said(self) -> tuple[str, ...]:
        """The kinds that it says something about."""
        return tuple(kind for kind in self.__struct_fields__ if getattr(self, kind) is not None)

    @property
    def holding(self) -> dict[str, tuple[str, ...]]:
        """Phase → streams that its tasks hold besides their own: what is synchronous holds compute."""
        off = (("send",) if self.pp is False else ()) + (("gather", "sync") if self.dp is False else ())
        return dict.fromkeys(off, ("compute",))

    def traits(self, timing: Timing) -> Timing:
        """A framework's traits with these switches. What pp sends is on a stream of its own already."""
        return changed(
            timing,
            tp_exposed=shown(self.tp, timing.tp_exposed, timing.overlapped),
            tp_exposed_backward=shown(self.tp, timing.tp_exposed_backward, timing.overlapped),
            ep_exposed=shown(self.ep, timing.ep_exposed, timing.overlapped),
            pp_exposed=1.0 if self.pp is False else timing.pp_exposed,
            dp_window=timing.dp_window if self.dp is None else float(self.dp),
        )


AS_PRICED = Overlap()


def shown(on: bool | None, exposed: float, overlapped: float) -> float:
    """Share of an exchange that is waited for."""
    if on is None:
        return exposed
    return exposed * overlapped if on else 1.0


def overlap_of(text: str | None) -> Overlap:
    """`tp=off,pp=on`; `all=off` is all four. Raises InputError."""
    found: dict[str, bool] = {}
    kinds = Overlap.__struct_fields__
    for part in () if text is None else text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\w+)\s*", part)
        if not match or match[1] not in (*kinds, "all") or match[2] not in WORDS:
            message = f"`{part.strip()}` switches no overlap"
            fix = f"like tp=off,dp=on; kinds are {', '.join(kinds)}, or all"
            raise InputError(message, where="--overlap", fix=fix)
        for kind in kinds if match[1] == "all" else (match[1],):
            if kind in found:
                raise InputError(f"`{kind}` is switched twice", where="--overlap", fix="say it once")
            found[kind] = WORDS[match[2]]
    return Overlap(**found)
