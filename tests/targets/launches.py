"""Launches of every kind that a program may be told: dense and with experts, of all degrees, stages and precisions."""

from planner.specs import library
from planner.specs.base import Layers, with_fields
from planner.specs.layers import Decoder, Module
from planner.specs.layers.components import Experts, LatentAttentionShape
from planner.specs.layers.rope_scaling import Llama3Scaling, YarnScaling
from planner.specs.model import Model
from planner.specs.parallelism import Parallelism
from planner.targets import TARGETS, Encoders, Launch, Target

LLAMA_70B = Decoder(layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=128256, rope_base=5e5)
LLAMA_8B = Decoder(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, rope_base=5e5)
SCALED = Decoder(
    layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, rope_base=5e5,
    rope_scaling=Llama3Scaling(factor=8.0, original=8192),
)  # fmt: skip
GPT = Decoder(
    layers=40, hidden=5120, heads=40, ffn=20480, vocab=50257, gated=False, norm="layer", bias="all",
    positions="learned", max_positions=2048, tied=True,
)  # fmt: skip
QWEN = Decoder(
    layers=36, hidden=4096, heads=32, kv_heads=8, ffn=12288, vocab=151936, head_dim=128, qk_norm=True, rope_base=1e6
)
QWEN_2 = Decoder(layers=28, hidden=3584, heads=28, kv_heads=4, ffn=18944, vocab=152064, bias="qkv", rope_base=1e6)
QWEN_2_VL = Decoder(
    layers=28, hidden=3584, heads=28, kv_heads=4, ffn=18944, vocab=152064, bias="qkv", rope_sections=(16, 24, 24)
)
VISION, HEARING = (library.read_named("qwen2.5-omni-7b", Model)[0].modules[name] for name in ("vision", "audio"))
NEMOTRON = Decoder(
    layers=32, hidden=4096, heads=48, kv_heads=8, ffn=16384, vocab=256000, gated=False, activation="relu2",
    rotary_share=0.5, head_dim=128, norm="layer",
)  # fmt: skip
WINDOWED = Decoder(
    layers=24, hidden=2880, heads=64, kv_heads=8, head_dim=64, ffn=2880, vocab=201088, window=128, full_every=2,
    sinks=True, moe=Experts(experts=32, topk=4, ffn=2880),
)  # fmt: skip
MIXTRAL = Decoder(
    layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000, rope_base=1e6,
    moe=Experts(experts=8, topk=2, ffn=14336, balance=0.01),
)  # fmt: skip
QWEN_MOE = Decoder(
    layers=48, hidden=2048, heads=32, kv_heads=4, head_dim=128, ffn=6144, vocab=151936, qk_norm=True,
    moe=Experts(experts=128, topk=8, ffn=768),
)  # fmt: skip
DEEPSEEK = Decoder(
    layers=28, hidden=2048, heads=16, ffn=10944, vocab=102400,
    latent=LatentAttentionShape(q_rank=0, kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128),
    moe=Experts(experts=64, topk=6, ffn=1408, shared_ffn=2816, dense_layers=1, scores="sigmoid", router_bias=True),
)  # fmt: skip
AHEAD = with_fields(
    DEEPSEEK, layers=29, mtp=1, moe=with_fields(DEEPSEEK.moe, scale=2.5, groups=8, group_topk=3),
    rope_scaling=YarnScaling(factor=40.0, original=4096, attention=1.0),
)  # fmt: skip
ALTERNATING = Decoder(
    layers=24,
    hidden=2048,
    heads=16,
    ffn=8192,
    vocab=32000,
    moe=Experts(experts=16, topk=1, ffn=8192, every=2, normalised=False),
)
CAPPED = Decoder(
    layers=24, hidden=2048, heads=16, ffn=8192, vocab=32000, moe=Experts(experts=16, topk=2, ffn=4096, capacity=1.25)
)


def spans(*sizes: int) -> tuple[Layers, ...]:
    """Stages of so many layers."""
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return tuple(Layers(range(start, start + size)) for start, size in zip(starts, sizes, strict=True))


def launch(module: Decoder, ranks: int, tokens: int, sequences: int, **layout: object) -> Launch:
    """A launch on nodes of eight, with dp as the rest."""
    own = {"micro_batch": 1, "zero": 1, "recompute": "none", **layout}
    more = {key: own.pop(key) for key in ("reduces_early", "gathers_early", "blackwell") if key in own}
    degrees = own.get("tp", 1) * own.get("cp", 1) * own.get("pp", 1) * own.get("replica", 1)
    layout = Parallelism(**{"dp": ranks // degrees, **own})
    return Launch(
        module=module, layout=layout, tokens=tokens, sequences=sequences, ranks=ranks, per_node=min(8, ranks), **more
    )


def with_encoders(alone: Launch, ranks: int, more: dict[str, Module] | None = None, tp: int = 1) -> Launch:
    """A launch with encoders on so many ranks in front of its own; of 0, on all of its own."""
    own = alone.layout
    if ranks:
        layout = Parallelism(tp=tp, dp=ranks // tp, sequence_parallel=tp == 1)
    else:
        layout = Parallelism(tp=own.tp, dp=own.dp, overlap=own.overlap)
    layout = with_fields(layout, zero=own.zero, dtype=own.dtype, gradients=own.gradients, recompute=own.recompute)
    encoders = Encoders(modules={"vision": VISION, **(more or {})}, layout=layout, apart=bool(ranks))
    return with_fields(alone, ranks=alone.ranks + ranks, encoders=encoders)


LAUNCHES: dict[str, Launch] = {
    "dense": launch(LLAMA_8B, 8, 8192, 128),
    "dense-ddp": launch(LLAMA_8B, 16, 4096, 64, tp=2, zero=0, reduces_early=False),
    "dense-late": launch(LLAMA_8B, 16, 4096, 64, tp=2, gathers_early=False),
    "dense-tp": launch(LLAMA_8B, 8, 8192, 128, tp=8, overlap=("tp",)),
    "dense-tp-alone": launch(LLAMA_8B, 8, 8192, 128, tp=4, sequence_parallel=False),
    "dense-pp": launch(LLAMA_70B, 64, 8192, 1024, tp=4, pp=4, micro_batch=2),
    "dense-vpp": launch(LLAMA_70B, 64, 8192, 128, tp=4, cp=2, pp=4, vpp=5),
    "dense-vpp-blackwell": launch(LLAMA_70B, 64, 8192, 128, tp=4, cp=2, pp=4, vpp=5, blackwell=True),
    "dense-full": launch(LLAMA_70B, 32, 4096, 256, tp=8, pp=4, recompute="full"),
    "dense-ranges": launch(LLAMA_70B, 32, 4096, 256, tp=8, pp=4, recompute={"0-4,20-24,40-44,60-64": "full"}),
    "dense-ranges-vpp": launch(LLAMA_8B, 16, 4096, 64, tp=2, pp=4, vpp=2, recompute={"0,4,8,12,16,20,24,28": "full"}),
    "dense-selective": launch(LLAMA_70B, 64, 8192, 128, tp=8, pp=4, recompute="selective"),
    "dense-parts": launch(LLAMA_8B, 8, 8192, 64, tp=2, recompute=("attention", "norm")),
    "dense-uneven": launch(LLAMA_70B, 64, 4096, 512, tp=8, pp=4, stages=spans(19, 21, 21, 19)),
    "dense-uneven-vpp": launch(LLAMA_8B, 16, 4096, 64, tp=2, pp=4, vpp=2, stages=spans(3, 4, 4, 4, 4, 4, 5, 4)),
    "dense-usual-uneven": launch(LLAMA_70B, 48, 4096, 480, tp=8, pp=3),
    "dense-hsdp": launch(LLAMA_8B, 64, 4096, 256, tp=2, replica=4),
    "dense-zero-2": launch(LLAMA_8B, 16, 4096, 64, zero=2),
    "dense-zero-3": launch(LLAMA_70B, 64, 4096, 256, zero=3, recompute="full"),
    "dense-zero-3-hsdp": launch(LLAMA_70B, 128, 4096, 256, zero=3, replica=4, recompute="full"),
    "dense-fp8": launch(LLAMA_70B, 64, 8192, 256, tp=4, pp=4, dtype="fp8"),
    "dense-float32": launch(GPT, 16, 2048, 64, tp=4, pp=2, dtype="float32"),
    "dense-ulysses": launch(LLAMA_8B, 32, 32768, 32, cp=4, ulysses=4, tp=2),
    "dense-both": launch(LLAMA_8B, 32, 65536, 32, cp=8, ulysses=2),
    "dense-pp-before-dp": launch(LLAMA_8B, 32, 4096, 64, tp=2, pp=4, rank_order="tp-pp-dp"),
    "dense-bf16-gradients": launch(LLAMA_8B, 16, 4096, 64, gradients="bf16"),
    "dense-host": launch(LLAMA_8B, 8, 4096, 64, optimizer_offload=0.5),
    "dense-host-kinds": launch(LLAMA_8B, 8, 4096, 64, tp=2, offload=("attention", "norm")),
    "experts-host-kinds": launch(QWEN_MOE, 64, 4096, 512, ep=8, offload=("norm", "moe")),
    "gpt": launch(GPT, 64, 2048, 512, tp=4, pp=2, micro_batch=4),
    "scaled-rope": launch(SCALED, 32, 131072, 32, tp=4, cp=8),
    "qwen": launch(QWEN, 16, 4096, 256, tp=2),
    "qwen-2": launch(QWEN_2, 16, 4096, 256, tp=4),
    "nemotron": launch(NEMOTRON, 32, 4096, 256, tp=8, pp=2),
    "window": launch(WINDOWED, 32, 8192, 64, ep=8, etp=1),
    "moe": launch(MIXTRAL, 64, 4096, 256, pp=4, ep=8, etp=1),
    "moe-folded": launch(MIXTRAL, 64, 4096, 256, tp=2, cp=2, pp=2, ep=8, etp=1, dispatch="node_level"),
    "moe-etp": launch(MIXTRAL, 64, 4096, 256, tp=4, pp=2, ep=4, etp=2, dispatch="all_gather"),
    "moe-fine": launch(QWEN_MOE, 128, 4096, 512, tp=2, pp=4, vpp=2, ep=16, etp=1, overlap=("ep",), recompute=("norm",)),
    "moe-latent": launch(DEEPSEEK, 64, 4096, 512, pp=2, ep=16, stages=spans(13, 15), recompute=("mlp", "moe")),
    "moe-ahead": launch(AHEAD, 64, 4096, 512, ep=16),
    "moe-ahead-stages": launch(AHEAD, 64, 4096, 512, pp=2, vpp=2, ep=16, stages=spans(8, 8, 8, 5)),
    "moe-alternating": launch(ALTERNATING, 32, 2048, 256, tp=2, ep=8, etp=2),
    "moe-capped": launch(CAPPED, 32, 2048, 256, ep=16),
    "encoder-apart": with_encoders(launch(QWEN_2_VL, 24, 2048, 96, micro_batch=2), 8),
    "encoder-apart-sharded": with_encoders(launch(QWEN_2_VL, 24, 2048, 96, tp=4, recompute="full"), 8, tp=4),
    "encoder-apart-pipeline": with_encoders(
        launch(LLAMA_70B, 48, 4096, 96, tp=4, pp=2, micro_batch=4, gradients="bf16"), 8
    ),
    "encoder-apart-experts": with_encoders(launch(QWEN_MOE, 32, 4096, 256, ep=8, etp=1, recompute=("norm",)), 16),
    "encoder-together": with_encoders(launch(QWEN_2_VL, 32, 2048, 128, micro_batch=2), 0),
    "encoder-together-sharded": with_encoders(launch(LLAMA_8B, 16, 4096, 64, tp=4, zero=0, overlap=("tp",)), 0),
    "encoder-together-zero-3": with_encoders(launch(LLAMA_8B, 16, 4096, 64, zero=3, recompute="full"), 0),
    "encoders-together": with_encoders(launch(QWEN_2_VL, 16, 2048, 64, tp=2), 0, more={"audio": HEARING}),
}  # fmt: skip


def target_of(launch: Launch) -> Target:
    """What Megatron is told of a launch by."""
    megatron = TARGETS["megatron"]
    return megatron.beside[not launch.encoders.apart] if launch.encoders else megatron


def known_of(launch: Launch) -> dict[str, object]:
    """What no script says of a launch."""
    known = {"ranks": launch.ranks, "per_node": launch.per_node, "blackwell": launch.blackwell}
    return known | ({"encoders.modules": launch.encoders.modules} if launch.encoders else {})
