"""Classes of device operations by kernel name: one table of patterns, the first match counts."""

import re
from functools import lru_cache

COMMUNICATION_CLASSES = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "send/recv",
    "broadcast",
    "reduce",
    "communication",
)

KERNEL_CLASSES: tuple[tuple[str, str], ...] = (
    ("all-reduce", r"nccl.*allreduce|all_?reduce_kernel|cross_device_reduce|allreduce_fusion|multimem_all_reduce"),
    ("reduce-scatter", r"nccl.*reducescatter|reduce_scatter"),
    ("all-gather", r"nccl.*allgather|all_gather_kernel|multimem_all_gather"),
    ("send/recv", r"nccl.*sendrecv|nccl.*(alltoall|all_to_all)"),  # NCCL implements all-to-all with these
    ("broadcast", r"nccl.*broadcast"),
    ("reduce", r"nccl.*reduce"),
    ("communication", r"nccl|nvshmem|deep_?ep|mscclpp"),
    ("attention", r"flash|fmha|attention|sdpa|paged_?attn|mha_"),
    ("convolution", r"conv|winograd|scudnn|cudnn.*(fprop|dgrad|wgrad)|im2col|col2im|fprop|wgrad|dgrad"),
    ("embedding", r"(?<!rotary_)embedding|fbgemm|pooled_embs|permute_\dd|\bemb|jagged|bounds_check|linearize_index"),
    ("gemm", r"gemm|cutlass|cublas|bmm_|nvjet|splitkreduce|wmma|gemv|matmul|cijk_|\bmm_"),
    ("optimizer", r"multi_tensor_apply|multitensorapply|adam|sgd|lamb(?!da)|adagrad|lars"),
    ("normalisation", r"norm|softmax|welford|bn_(fw|bw)|rowwisemoments|gammabeta"),
    ("reduction", r"reduce_kernel|reduce|cumsum|scan|argmax|topk|sort"),
    (
        "elementwise",
        r"elementwise|vectorized|fill|copy|catarray|index|gather|scatter|triton_|nchw|nhwc|packedtensor|quant|dropout|pool|where",
    ),
)
PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in KERNEL_CLASSES)


@lru_cache(maxsize=100_000)
def kernel_class(name: str, kind: str = "kernel") -> str:
    """The class of a device operation; `kind`: kernel, memcpy or memset."""
    if kind != "kernel":
        return kind
    return next((found for found, pattern in PATTERNS if pattern.search(name)), "other")


def is_communication(kind: str) -> bool:
    return kind in COMMUNICATION_CLASSES
