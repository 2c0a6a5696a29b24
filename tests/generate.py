"""Hypothesis strategies for everything that stands in a file, from the types themselves: what is added is covered."""

from dataclasses import replace
from datetime import date
from typing import Any

import msgspec
from hypothesis import strategies as st

from planner.plan.plan_file import Layout, TaskPlacement
from planner.plan.task import TaskName, TaskRef
from planner.specs.base import FirstStage, Indices, Layers, RankChoice, Ranks, with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.own_runs import OwnRun
from planner.specs.framework.software import Software
from planner.specs.framework.timing_coefficients import WIDTHS
from planner.specs.hardware.cluster import Cluster, Level, RankKind
from planner.specs.hardware.node_cluster import NodeAdapters, NodeCluster, NodeGpus
from planner.specs.hardware.pool import PoolKind
from planner.specs.hardware.profile import PassCosts, PassFit
from planner.specs.job import Job
from planner.specs.layers import Audio, Decoder, Described, TextEncoder, Vit
from planner.specs.layers.components import Experts, LayerTable, LinearAttention, StateSpace
from planner.specs.layers.resize import FixedResize, SmartResize, TiledResize
from planner.specs.loader import LoaderFile, LoaderPool, LoaderStage, LoaderTiming
from planner.specs.model import Model, ModelEdge, ModelTask
from planner.specs.parallelism import MESH_DIMS, RECOMPUTED_PARTS, Parallelism
from planner.specs.workload.items import ItemSize
from planner.specs.workload.length_sources import DrawnClips, DrawnImages, TaskSamples, Workload

TEXT = st.one_of(
    st.sampled_from(
        ["", "~", "null", "true", "1e9", ".5", "-", "a: b", "# no", "yes", "0x1f", "2001-01-01", " x ", "{"]
    ),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
)
MONTHS = st.just("") | st.dates(min_value=date(2000, 1, 1), max_value=date(2099, 12, 31)).map("{:%Y-%m}".format)
NAMES = st.from_regex(r"[A-Za-z0-9_.+-]{1,6}", fullmatch=True)
WRITTEN = {NodeGpus: ("8xh100", "4 x ./box.yaml", "72×gb200"), NodeAdapters: ("8x400Gb", "3.2Tb", "8x50GB/s")}
INDICES = st.sets(st.integers(0, 200), min_size=1, max_size=12).map(sorted)


def instances(kind: type) -> st.SearchStrategy:
    """Values of a type as a file can hold them."""
    return of_type(msgspec.inspect.type_info(kind))


def of_type(info: Any) -> st.SearchStrategy:
    info = info.type if isinstance(info, msgspec.inspect.Metadata) else info
    if isinstance(info, msgspec.inspect.StructType):
        return struct(info)
    if isinstance(info, msgspec.inspect.CustomType):
        if info.cls in WRITTEN:
            return st.sampled_from(WRITTEN[info.cls]).map(info.cls)
        if info.cls is RankChoice:
            return INDICES.map(Ranks) | st.just(FirstStage())
        assert issubclass(info.cls, Indices)
        return INDICES.map(info.cls)
    if isinstance(info, msgspec.inspect.UnionType):
        return st.one_of(*map(of_type, info.types))
    if isinstance(info, msgspec.inspect.DictType):
        sizes = {"min_size": info.min_length or 0, "max_size": most(info)}
        return st.dictionaries(of_type(info.key_type), of_type(info.value_type), **sizes)
    if isinstance(info, msgspec.inspect.VarTupleType):
        return st.lists(of_type(info.item_type), min_size=info.min_length or 0, max_size=most(info)).map(tuple)
    if isinstance(info, msgspec.inspect.TupleType):
        return st.tuples(*map(of_type, info.item_types))
    return scalar(info)


def most(info: Any) -> int:
    """A few more than it must have, and no more than it may."""
    few = (info.min_length or 0) + 2
    return few if info.max_length is None else min(few, info.max_length)


def scalar(info: Any) -> st.SearchStrategy:
    if isinstance(info, msgspec.inspect.LiteralType):
        return st.sampled_from(info.values)
    if isinstance(info, msgspec.inspect.IntType):
        return st.integers(info.ge if info.ge is not None else -(10**17), info.le or 10**17)
    if isinstance(info, msgspec.inspect.FloatType):
        least = info.gt if info.gt is not None else info.ge
        return st.floats(least, info.le, exclude_min=info.gt is not None, allow_nan=False, allow_infinity=False)
    if isinstance(info, msgspec.inspect.StrType):
        return NAMES if info.pattern else TEXT.filter(bool) if info.min_length else TEXT
    if isinstance(info, msgspec.inspect.BoolType):
        return st.booleans()
    assert isinstance(info, msgspec.inspect.NoneType)
    return st.none()


def struct(info: Any) -> st.SearchStrategy:
    """An instance; structs that check more than their types have a strategy of their own."""
    if info.cls in CHECKED:
        return CHECKED[info.cls]()
    return plain(info)


def plain(info: Any, **given: st.SearchStrategy) -> st.SearchStrategy:
    fields = {field.name: of_type(field.type) for field in info.fields if field.name not in given}
    if hasattr(info.cls, "FORMAT"):
        given["format"] = st.just(info.cls.FORMAT)
    return st.builds(info.cls, **(fields | given))


def unchecked(kind: type, **given: st.SearchStrategy) -> st.SearchStrategy:
    return plain(msgspec.inspect.type_info(kind), **given)


def modules(kind: type, **given: st.SearchStrategy) -> st.SearchStrategy:
    """Heads that divide what they have to."""
    return st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([None, 1]), st.sampled_from([None, 8])).flatmap(
        lambda heads: unchecked(
            kind,
            heads=st.just(heads[0]),
            kv_heads=st.just(heads[1]),
            head_dim=st.just(heads[2]),
            hidden=st.integers(1, 1000).map(lambda width: 4 * width),
            **(decoder_parts(hybrid=heads[2] is not None) if kind is Decoder else {}),
            **((vit_parts() if kind is Vit else {}) | given),
        )
    )


def decoder_parts(hybrid: bool) -> dict[str, st.SearchStrategy]:
    """Positions to learn, and windows that full attention interrupts; or state spaces, and half of each head turns."""
    usual = {"max_positions": st.integers(1, 100), "window": st.integers(1, 100), "buckets": st.just(0)}
    usual |= {"cross": st.none(), "cross_norms": st.just(False), "cross_gates": st.just(False)}
    usual |= {
        "added_words": st.just(0),
        "rope_scaling": st.none(),
        "rope_sections": st.just(()),
        "rope_interleaved": st.just(False),
        "positions": st.sampled_from(["rope", "learned", "none"]),
    }
    usual |= {"layers": st.integers(2, 10_000), "mtp": st.sampled_from([0, 1])}
    usual |= {"linear_attention": st.none(), "indexer": st.none(), "attention_gate": st.just(False)}
    if not hybrid:
        return usual | {"pattern": st.just(""), "state_space": st.none(), "rotary_share": st.just(1.0)}
    return usual | {
        "layers": st.just(3),
        "pattern": st.sampled_from(["M - *", "M- *- M-", "*M- *M- *"]),
        "state_space": unchecked(StateSpace, heads=st.just(4), groups=st.sampled_from([1, 2]), step_max=st.none()),
        "moe": st.none(),
        "latent": st.none(),
        "positions": st.just("rope"),
        "rotary_share": st.sampled_from([0.5, 1.0]),
    }


def described() -> st.SearchStrategy:
    """A table for all layers, or one for each of three, by names that there are."""
    table = unchecked(LayerTable, name=st.just("a"), experts=st.just(False), **HEADS)
    two = st.tuples(table, unchecked(LayerTable, name=st.just("b"), experts=st.booleans(), **HEADS))
    shape = {**HEADS, "hidden": st.just(12), "heads": st.just(4)}
    patterns = st.sampled_from(["a b a", "b b b"])
    return unchecked(Described, **shape, tables=st.tuples(table), pattern=st.just("")) | unchecked(
        Described, **shape, tables=two, layers=st.just(3), pattern=patterns, moe=experts()
    )


HEADS = {"heads": st.none(), "kv_heads": st.none(), "head_dim": st.none() | st.integers(1, 9)}


def linear_attention() -> st.SearchStrategy:
    """Heads of values that share those of keys."""
    return unchecked(LinearAttention, heads=st.just(4), key_heads=st.sampled_from([1, 2, 4]))


def vit_parts() -> dict[str, st.SearchStrategy]:
    """Squares of whole outputs; a table where positions are learned, a class token where nothing is merged."""
    pixels = st.integers(1, 20).map(lambda outputs: 28 * outputs)
    squares = unchecked(FixedResize, pixels=pixels) | unchecked(TiledResize, pixels=pixels)
    merges = {"patch": st.just(14), "merge": st.sampled_from([1, 2]), "class_token": st.just(False)}
    merges |= {"positions": st.just("rope"), "max_positions": st.just(0), "gated_layers": st.sampled_from([0, 1])}
    merges |= {"deep_layers": st.sampled_from([(), (0,)])}
    return merges | {"resize": st.none() | squares | unchecked(SmartResize)}


def experts() -> st.SearchStrategy:
    """No more to choose than there are, and counted layers with a number of tokens for each."""
    tokens = st.integers(1, 1000).map(float)

    def of(count: int) -> st.SearchStrategy:
        counted = st.lists(tokens, min_size=count, max_size=count).map(tuple)
        counts = st.lists(counted, max_size=2).map(tuple)
        return unchecked(
            Experts,
            experts=st.just(count),
            topk=st.integers(1, 4),
            counts=counts,
            groups=st.just(1),
            group_topk=st.just(1),
            shared_ffn=st.integers(1, 9),
        )

    return st.integers(4, 12).flatmap(of)


def layouts(kind: type) -> st.SearchStrategy:
    """Chunks only where a schedule takes them, heads for some of cp's ranks, each dim once in an order, each part of a
    layer once among those that are recomputed or offloaded.
    """
    orders = st.lists(st.sampled_from(MESH_DIMS), min_size=1, unique=True).map("-".join)
    parts = st.lists(st.sampled_from(RECOMPUTED_PARTS), min_size=1, unique=True).map(tuple)
    recompute = st.sampled_from(["none", "selective", "full"]) | parts
    offload = st.sampled_from([0.0, 0.25, 1.0]) | parts
    ranges = st.dictionaries(INDICES.map(lambda layers: Layers(layers).to_file()), recompute, max_size=2)
    return unchecked(
        kind,
        schedule=st.sampled_from([None, "interleaved"]),
        cp=st.integers(1, 100).map(lambda blocks: 4 * blocks),
        ulysses=st.sampled_from([1, 2, 4]),
        recompute=recompute | ranges if kind is Layout else st.none() | recompute | ranges,
        offload=offload if kind is Layout else st.none() | offload,
        rank_order=orders if kind is Layout else st.none() | orders,
    )


def jobs() -> st.SearchStrategy:
    """Ranks are of one module's layout, not of all, and so are features."""
    of_one = dict.fromkeys(("ranks", "features"))
    return unchecked(Job, layout=layouts(Parallelism).map(lambda layout: with_fields(layout, **of_one)))


def clusters() -> st.SearchStrategy:
    """The last level joins all ranks."""
    kinds = st.lists(rank_kinds(), min_size=1, max_size=2)
    near = st.lists(unchecked(Level, ranks=st.just(2)), max_size=1)
    return unchecked(
        Cluster,
        ranks=kinds.map(tuple),
        levels=st.tuples(near, unchecked(Level, ranks=st.just(128))).map(lambda levels: (*levels[0], levels[1])),
    )


def knobs() -> st.SearchStrategy:
    """Sources of knobs that there are, each dim once in an order."""
    orders = st.lists(st.sampled_from(MESH_DIMS), min_size=1, unique=True).map("-".join)
    named = st.dictionaries(st.sampled_from(["tp", "zero"]), TEXT)
    return unchecked(Knobs, rank_orders=st.lists(orders, max_size=2).map(tuple), sources=named)


def node_clusters() -> st.SearchStrategy:
    """Of no more ranks than there may be."""
    return unchecked(NodeCluster, nodes=st.integers(1, 1000))


def models() -> st.SearchStrategy:
    """Edges between modules that there are, of one width; or a task of two towers of one width."""
    edge = st.builds(ModelEdge, source=st.just("a"), target=st.just("b"))
    task = st.builds(ModelTask, modules=st.just(("a", "b")), loss=st.just("contrastive"), weight=st.floats(1e-6, 1e9))
    with_edges = modules(Decoder).flatmap(
        lambda reader: unchecked(
            Model,
            modules=st.fixed_dictionaries({"a": modules(Vit, out=st.just(reader.hidden)), "b": st.just(reader)}),
            edges=st.lists(edge, max_size=1).map(tuple),
            tasks=st.just({}),
        )
    )
    tower = modules(Vit, out=st.just(8), deep_layers=st.just(()))
    towers = st.fixed_dictionaries({"a": tower, "b": tower})
    named = st.dictionaries(NAMES, task, min_size=1)
    return with_edges | unchecked(Model, modules=towers, edges=st.just(()), tasks=named)


def workloads() -> st.SearchStrategy:
    """With lengths, or tasks or requests in their place."""
    tasks = st.dictionaries(NAMES, unchecked(TaskSamples), min_size=1, max_size=2)
    nothing = {"lengths": st.just(0), "batch_rows": st.just(0), "streams": st.just({})}
    none = st.just("")
    trained = unchecked(Workload, tasks=st.just({}), requests=none) | unchecked(
        Workload, tasks=tasks, requests=none, **nothing
    )
    return trained | unchecked(Workload, tasks=st.just({}), requests=TEXT.filter(bool), **nothing)


def texts() -> st.SearchStrategy:
    """With a table of positions, and one of words."""
    rows = st.integers(1, 100)
    places = {"positions": st.just("learned"), "max_positions": rows, "buckets": st.just(0)}
    return modules(TextEncoder, shared_words=st.just(False), **places)


def sizes() -> st.SearchStrategy[ItemSize]:
    """In one unit; two frames are a token."""
    counts = st.lists(st.integers(1, 1000), min_size=1, max_size=3).map(tuple) | st.integers(1, 1000)
    frames = st.lists(st.integers(1, 1000).map(lambda tokens: 2 * tokens), min_size=1, max_size=3).map(tuple)
    tokens = st.builds(ItemSize, tokens=st.integers(1, 1000))
    return tokens | st.builds(ItemSize, patches=counts) | st.builds(ItemSize, frames=frames)


def passes() -> st.SearchStrategy:
    fit, none = unchecked(PassFit), st.none()
    return st.one_of(
        unchecked(PassCosts, forward=fit, backward=fit, both=none),
        unchecked(PassCosts, forward=none, backward=none, both=fit),
    )


def rank_kinds(**given: st.SearchStrategy) -> st.SearchStrategy[RankKind]:
    """With links of their own, or as the cluster's."""
    levels = unchecked(Level, ranks=st.just(64)).map(lambda level: (level,)) | st.just(())
    return unchecked(RankKind, levels=levels, **{"count": st.integers(1, 64), **given})


def pool_kinds() -> st.SearchStrategy[PoolKind]:
    """Counts that may be rented, or the most."""
    some = st.lists(st.integers(1, 100), min_size=1, max_size=3).map(tuple)
    return unchecked(PoolKind, counts=some, max=st.none()) | unchecked(
        PoolKind, counts=st.just(()), max=st.integers(1, 100)
    )


def references() -> st.SearchStrategy[TaskRef]:
    """Names of modules and groups may have dots, but none of what else a reference is made of."""
    rows, indices = st.integers(0, 10**9 - 1), st.integers(0, 1000)
    passes = st.builds(lambda phase, row: {"phase": phase, "micro_batch": row}, st.sampled_from("FBIW"), rows)
    transfers = st.builds(
        lambda phase, of, row: {"phase": phase, "of": of, "micro_batch": row},
        st.sampled_from(["send", "recv"]),
        st.sampled_from("FB"),
        rows,
    )
    others = st.builds(
        lambda phase, row: {"phase": phase, "micro_batch": row},
        st.sampled_from(["gather", "sync", "update", "offload"]),
        st.none() | rows,
    )
    return st.builds(
        lambda done, **rest: TaskRef(**done, **rest),
        passes | transfers | others,
        module=st.from_regex(r"[A-Za-z0-9_+-]+(\.[0-9]+)?", fullmatch=True),
        layers=st.none() | st.sets(indices, min_size=1).map(lambda layers: Layers(sorted(layers))),
        stage=st.none() | indices,
        group=st.just("") | st.from_regex(r"[A-Za-z0-9_.+-]+(>[A-Za-z0-9_.+-]+)?", fullmatch=True),
    )


def places() -> st.SearchStrategy:
    names = references().map(lambda ref: TaskName(str(ref)))
    moved = references().map(lambda ref: TaskName(str(replace(ref, group=""))))
    return st.sampled_from(["before", "after", "beside"]).flatmap(
        lambda where: st.builds(TaskPlacement, do=moved, on=st.just("") | TEXT, **{where: names})
    )


def named_or(kind: type, field: str) -> st.SearchStrategy:
    """A name of a distribution, or what it would be drawn for."""
    (given,) = (each for each in msgspec.inspect.type_info(kind).fields if each.name == field)
    values = st.lists(of_type(given.type.item_type), min_size=1, max_size=3).map(tuple)
    return unchecked(kind, name=st.just("coco"), **{field: st.just(())}) | unchecked(
        kind, name=st.just(""), **{field: values}
    )


def own_runs() -> st.SearchStrategy:
    """Slopes by coefficients that there are."""
    return unchecked(OwnRun, slopes=st.dictionaries(st.sampled_from([*WIDTHS]), st.floats(-9.0, 9.0), max_size=3))


def loader_stages() -> st.SearchStrategy:
    """Stages that take some time, on units of a pool or none."""
    return unchecked(LoaderStage, seconds=st.floats(0.001, 1e6), pool=st.sampled_from([None, "cores"]))


def loaders() -> st.SearchStrategy:
    """Stages of different names, on a pool that there is, timed with each number of workers once."""
    stages = st.lists(loader_stages(), min_size=1, max_size=3, unique_by=lambda stage: stage.name).map(tuple)
    timings = st.lists(unchecked(LoaderTiming), max_size=3, unique_by=lambda timing: timing.workers).map(tuple)
    pools = unchecked(LoaderPool).map(lambda pool: {"cores": pool})
    return unchecked(LoaderFile, stages=stages, timings=timings, pools=pools)


CHECKED = {
    LoaderStage: loader_stages,
    LoaderFile: loaders,
    Job: jobs,
    OwnRun: own_runs,
    Software: lambda: unchecked(Software, month=MONTHS),
    Decoder: lambda: modules(Decoder),
    Vit: lambda: modules(Vit),
    Audio: lambda: modules(Audio),
    TextEncoder: texts,
    Experts: experts,
    Described: described,
    LinearAttention: linear_attention,
    Parallelism: lambda: layouts(Parallelism),
    Layout: lambda: layouts(Layout),
    ItemSize: sizes,
    Cluster: clusters,
    RankKind: rank_kinds,
    NodeCluster: node_clusters,
    Knobs: knobs,
    Model: models,
    Workload: workloads,
    PassCosts: passes,
    PoolKind: pool_kinds,
    TaskPlacement: places,
    DrawnImages: lambda: named_or(DrawnImages, "sizes"),
    DrawnClips: lambda: named_or(DrawnClips, "seconds"),
}
