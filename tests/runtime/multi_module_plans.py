"""Plans of several modules for tests of the runtime."""

from planner.plan.plan_file import Edge, Group, Layout, Plan, Step, group_name
from planner.specs.base import Ranks, with_fields
from planner.specs.layers import Audio, Decoder, TextEncoder, Vit
from planner.specs.layers.resize import SmartResize, TiledResize
from planner.specs.layers.vit import Projector
from tests.plans import plan_of, stages_of, uses

LLM = Decoder(layers=4, hidden=32, heads=8, kv_heads=4, ffn=48, vocab=64)
VIT = Vit(layers=4, hidden=16, heads=8, ffn=24, patch=2, merge=2, out=32)
EAR = Audio(layers=2, hidden=16, heads=4, ffn=24, mels=4, pool=2, out=32)
TABLES = {"positions": "learned", "final_norm": False, "patch_bias": True}
CLIP = Vit(layers=4, hidden=16, heads=8, ffn=24, patch=2, out=32, max_positions=9, class_token=True, input_norm=True,
           activation="quick_gelu", projector=Projector(inner="out"), **TABLES)  # fmt: skip
TILES = Vit(layers=2, hidden=16, heads=8, ffn=24, patch=2, merge=2, out=32, max_positions=16,
            projector=Projector(inner="out", norm=True), **TABLES)  # fmt: skip
LINEAR = Vit(layers=2, hidden=16, heads=8, ffn=24, patch=2, merge=2, out=32, norm="rms", projector=Projector(linears=1))
EYE = Vit(layers=3, hidden=32, heads=8, ffn=24, patch=2, out=32)  # these can read others
DRUM = Audio(layers=2, hidden=32, heads=8, ffn=24, mels=4, pool=2, out=32)
T5 = {"heads": 4, "ffn": 40, "vocab": 48, "norm": "rms", "bias": "none", "activation": "relu", "gated": False,
      "positions": "relative", "buckets": 8}  # fmt: skip
TEXT = TextEncoder(layers=3, hidden=16, **T5)
BERT = TextEncoder(layers=2, hidden=16, heads=4, ffn=40, vocab=50, max_positions=40, segments=2, input_norm=True,
                   post_norm=True, pooled=True)  # fmt: skip
READER = Decoder(layers=2, hidden=24, kv_heads=2, cross=16, tied=True, scaled_head=True, **T5)  # of either
TURNING = Decoder(layers=2, hidden=16, heads=4, ffn=40, vocab=48, cross=16, bias="all", norm="layer")
PHOTO = with_fields(VIT, resize=SmartResize(min_pixels=64, max_pixels=400))  # these read pixels and frames
TILED = with_fields(VIT, frames=2, channels=1, resize=TiledResize(8, 3))
TALK = with_fields(EAR, chunk=0.1)  # ten frames, which are padded to three outputs
SEEING = {"layers": 4, "hidden": 32, "heads": 8, "kv_heads": 4, "ffn": 48, "vocab": 64, "cross": 32}
SEEING |= {"cross_norms": True, "cross_gates": True}
SEER = Decoder(**SEEING, added_words=2, pattern="*- X- *- X-")  # attends to images in some layers alone
LATE = Decoder(**SEEING, pattern="*- *- X- *-")  # its first half reads no image
SQUARES = Vit(layers=4, hidden=32, heads=8, ffn=24, patch=2, merge=2, out=32, gated=True, norm="rms",
              positions="rope_2d", window=16, full_layers=(1,))  # fmt: skip
SECTIONS = with_fields(LLM, head_dim=8, rope_sections=(1, 1, 2))
SPECS = {"llm": LLM, "vit": VIT, "ear": EAR, "eye": EYE, "drum": DRUM}
SPECS |= {"photo": PHOTO, "tiled": TILED, "talk": TALK, "clip": CLIP, "tiles": TILES, "linear": LINEAR}
SPECS |= {"text": TEXT, "bert": BERT, "reader": READER, "turning": TURNING, "seer": SEER, "late": LATE}
SPECS |= {"gridded": with_fields(PHOTO, head_dim=4, positions="rope_2d", window=16, full_layers=(0,))}
DEEP = Vit(layers=3, hidden=16, heads=4, ffn=24, patch=2, merge=2, out=32, patch_bias=True, positions="rope_2d",
           place_table=25, deep_layers=(2, 0))  # fmt: skip
SPECS |= {"squares": SQUARES, "sections": SECTIONS, "deep": DEEP}
TEXTS = {0: 23, 1: 17, 2: 9, 3: 30}
IMAGES = {0: 16, 1: 8, 2: 24, 3: 28}
FEEDS = {0: 0, 1: 0, 2: 1, 3: 3}  # two images in the first text, none in the third


def layout(module: str, ranks=range(4), **said) -> Layout:
    """Stages of equal size."""
    pp, chunks = said.get("pp", 1), said.get("pp", 1) * said.get("vpp", 1)
    stages = stages_of(SPECS[module].layers, chunks) if pp > 1 else ()
    return Layout(ranks=Ranks(ranks), stages=stages, **{"dtype": "float64", "zero": 1, **said})


def joined(layouts: dict[str, Layout], rows, *, order=None, places=(), splits=None, **facts) -> Plan:
    """`rows`: of each micro-batch, module → ranks of a group → its items. `facts`: other items, other feeds, by edge;
    one to `llm` may be called as what feeds it. Modules with cross attention read by it.
    """
    groups, placed = {}, []
    for row in rows:
        placed.append({})
        for module, cells in row.items():
            for ranks, of_cell in cells.items():
                spread, name = layouts[module], f"{module}.{group_name(Ranks(ranks))}"
                degree = len(ranks) // (spread.pp * spread.tp)
                usual = {"ulysses": degree} if degree > 1 and spread.cp == 1 else {}
                split = (splits or {}).get((module, ranks), usual)
                groups[name] = Group(ranks=Ranks(ranks), split=split)
                placed[-1].setdefault(module, {})[name] = of_cell
    items = facts.get("items", {"llm": TEXTS, "vit": IMAGES})
    feeds = facts.get("feeds", {"vit": FEEDS})
    sync = "micro_batch" if any(each.zero == 3 for each in layouts.values()) else "step"
    orders = {"llm": order} if order else {}
    step = Step(sync=sync, micro_batches=tuple(placed), order={**orders, "place": places} if places else orders)
    specs = {name: SPECS[name] for name in layouts}
    size = 1 + max(rank for each in layouts.values() for rank in each.ranks)
    rings = any("ring" in split for (module, _), split in (splits or {}).items() if module == "llm")
    reshard = "zigzag" if rings else "contiguous"
    between = [(source, target or "llm") for source, _, target in (name.partition(">") for name in feeds)]
    edges = tuple(
        Edge(
            source=source,
            target=target,
            by="cross_attention" if specs[target].cross_attention_width else "tokens",
            reshard=reshard if target == "llm" else "contiguous",
        )
        for source, target in between
    )
    return plan_of(size, uses(size, specs, items, feeds), layouts, groups, step, edges)


def require_those_of_one_process(plan: Plan, verified, most: float = 1e-12) -> None:
    assert (verified.steps, verified.items) == (1, sum(map(len, plan.uses.items.values())))
    assert (verified.loss_rel_err <= most, verified.grad_rel_err <= most) == (True, True), verified
