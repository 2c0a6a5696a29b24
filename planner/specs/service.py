"""The service that a job promises who asks its model: how soon answers begin, how fast they go on, and for how many."""

from typing import Annotated

import msgspec

from planner.specs.base import Positive, Spec

Percentile = Annotated[float, msgspec.Meta(ge=1, le=100)]


class Service(Spec, kw_only=True):
    """A service level: so many requests of a hundred meet both times."""

    ttft_s: Positive  # from a request's arrival to its first token
    tpot_s: Positive  # of each further token, in the mean of a request
    percentile: Percentile = 90.0

    @property
    def share(self) -> float:
        """Of all requests, those that have to meet both times."""
        return self.percentile / 100.0
