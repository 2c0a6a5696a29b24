"""The file of decisions about instances of a server: its requests, what it began with, what was decided, and what came
of it. Its decisions can be replayed, and taken again, from what stands in it and the rates of its device.
"""

from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Amount, Count, Index, LayerCount, Share, Spec
from planner.specs.cluster_jobs.actions_file import ActionsFile
from planner.specs.service import Service

Degree = Literal[1, 2, 4, 8]  # of tensor parallelism


class ServedShare(Spec, kw_only=True):
    """Instances with the same stages: e encode, p prefill, d decode."""

    stages: Literal["e", "p", "d", "ep", "pd", "epd"]
    instances: LayerCount
    tp: Degree


class ServedRequest(Spec, kw_only=True):
    """One request."""

    id: str
    arrival_s: Amount
    text_tokens: Index
    output_tokens: Count
    images: tuple[Count, ...] = ()  # tokens of each
    image_hashes: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()  # hashes of its blocks


class ServedSetup(Spec, kw_only=True):
    """How all instances work; family and limits are those of `planner serve`."""

    family: Literal["coupled", "chunked", "encoders", "prefill", "split"]
    answers: Count  # at once on an instance
    tokens: Count  # of an iteration
    order: Literal["fifo", "shortest"]
    switch_s: Amount  # in which an instance takes on other stages
    start_s: Amount  # beside loading weights, for another tensor-parallel degree
    encoder_cache: Index = 0  # tokens
    prefix_cache: Index = 0
    degrees: tuple[Degree, ...]  # that instances may have


class RecordedTurn(Spec, kw_only=True):
    """Instances that take on other stages, or another degree; and every term that was weighed."""

    instances: tuple[Index, ...]
    stages: Literal["e", "p", "d", "ep", "pd", "epd"]
    tp: Literal[0, 1, 2, 4, 8] = 0  # 0: as before
    reason: str = ""
    terms: dict[str, Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]] = msgspec.field(default_factory=dict)


class RecordedTurns(Spec, kw_only=True):
    """All actions at one time."""

    at_s: Amount
    actions: tuple[RecordedTurn, ...]


class ServingOutcome(Spec, kw_only=True):
    """What came of the decisions."""

    in_time: Share  # of all requests
    mean_first_s: Amount  # from arrival to the first token
    mean_done_s: Amount  # and to the last
    moves: Index


class ServingActionsFile(Spec, kw_only=True):
    """A file of decisions about instances of a server, `planner.actions/1` too."""

    FORMAT: ClassVar[str] = ActionsFile.FORMAT
    format: str
    model: str
    cluster: str
    memory_margin: Share
    prices: str = ""  # digest of the seconds and rooms that it was decided at
    service: Service
    setup: ServedSetup
    start: Annotated[tuple[ServedShare, ...], msgspec.Meta(min_length=1)]
    outcome: ServingOutcome
    decisions: tuple[RecordedTurns, ...]
    requests: Annotated[tuple[ServedRequest, ...], msgspec.Meta(min_length=1)]
