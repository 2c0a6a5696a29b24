"""Overlap of communication with compute, as a switch for each kind, to find out what overlapping it would save.

off: ranks do nothing else while they communicate. on: communication of tp and of experts overlaps as far as the
framework's coefficients allow; gradients and weights of replicas with all concurrent compute, whatever the coefficients
are (an upper limit of the gain); transfers between stages do not change, as they have a stream of their own already.
Left out: as the plan is priced.
"""

import re

from planner.errors import InputError
from planner.specs.base import Spec, with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients

SWITCHES = {"on": True, "off": False}


class Overlap(Spec):
    """Switches of tensor parallelism, of transfers between stages and modules, of replicas, and of experts."""

    tp: bool | None = None
    pp: bool | None = None
    dp: bool | None = None
    ep: bool | None = None

    @property
    def switched(self) -> tuple[str, ...]:
        """The kinds that are switched on or off."""
        return tuple(kind for kind in self.__struct_fields__ if getattr(self, kind) is not None)

    @property
    def occupied_streams(self) -> dict[str, tuple[str, ...]]:
        """Phase → streams that its tasks occupy besides their own: without overlap they occupy compute."""
        off = (("send",) if self.pp is False else ()) + (("gather", "sync") if self.dp is False else ())
        return dict.fromkeys(off, ("compute",))

    def switched_timing(self, timing: TimingCoefficients) -> TimingCoefficients:
        """Return a framework's coefficients with these switches applied."""
        return with_fields(
            timing,
            tp_exposed=exposed_share(self.tp, timing.tp_exposed, timing.overlapped),
            tp_exposed_backward=exposed_share(self.tp, timing.tp_exposed_backward, timing.overlapped),
            ep_exposed=exposed_share(self.ep, timing.ep_exposed, timing.overlapped),
            pp_exposed=1.0 if self.pp is False else timing.pp_exposed,
            dp_window=timing.dp_window if self.dp is None else float(self.dp),
            overlaps_replicas=timing.overlaps_replicas if self.dp is None else self.dp,
            gathers_ahead=timing.gathers_ahead if self.dp is None else self.dp,
        )


AS_PRICED = Overlap()


def exposed_share(on: bool | None, exposed: float, overlapped: float) -> float:
    """Return the share of an exchange that is exposed with overlap switched on or off; None: as priced, `exposed`."""
    if on is None:
        return exposed
    return exposed * overlapped if on else 1.0


def parse_overlap(text: str | None) -> Overlap:
    """Parse `tp=off,pp=on`; `all=off` is all four. Raises InputError."""
    switches: dict[str, bool] = {}
    kinds = Overlap.__struct_fields__
    for part in () if text is None else text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\w+)\s*", part)
        if not match or match[1] not in (*kinds, "all") or match[2] not in SWITCHES:
            message = f"`{part.strip()}` switches no overlap"
            fix = f"like tp=off,dp=on; kinds are {', '.join(kinds)}, or all"
            raise InputError(message, where="--overlap", fix=fix)
        for kind in kinds if match[1] == "all" else (match[1],):
            if kind in switches:
                raise InputError(f"`{kind}` is switched twice", where="--overlap", fix="give it once")
            switches[kind] = SWITCHES[match[2]]
    return Overlap(**switches)
