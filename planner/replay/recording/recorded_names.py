"""What recorded names mean: the class of a device operation, from one table of patterns of which the first match
counts; and what a call of the device runtime does to streams, of CUDA's runtime and driver, HIP and others.
"""

import re
from functools import lru_cache
from typing import Literal

from planner.plan.task import LOADER

COMMUNICATION_CLASSES = (
    "all-reduce", "reduce-scatter", "all-gather", "send/recv", "broadcast", "reduce", "communication",
)  # fmt: skip

KERNEL_CLASSES: tuple[tuple[str, str], ...] = (
    ("all-reduce", r"{library}all_?reduce|all_?reduce_kernel|cross_device_reduce|allreduce_fusion|multimem_all_reduce"),
    ("reduce-scatter", r"{library}reduce_?scatter|reduce_scatter"),
    ("all-gather", r"{library}all_?gather|all_gather_kernel|multimem_all_gather"),
    ("send/recv", r"{library}(send|recv|all_?to_?all)"),  # NCCL implements all-to-all with these
    ("broadcast", r"{library}broadcast"),
    ("reduce", r"{library}reduce"),
    ("communication", r"{library}|nvshmem|deep_?ep|mscclpp"),
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
LIBRARY = r"(nccl|rccl|\b(?:gloo:|hcom_|hccl_|oneccl_|xccl_)).*?"  # of NVIDIA, AMD, CPUs, Ascend and Intel
PATTERNS = tuple(
    (kind, re.compile(pattern.replace("{library}", LIBRARY), re.IGNORECASE)) for kind, pattern in KERNEL_CLASSES
)
HOST_COLLECTIVE = "gloo:"  # begins the spans of collectives that host threads do
COLLECTIVE_CALL = re.compile(r"c10d::(?!recv|wait|monitored)")  # an operator that has a collective done


@lru_cache(maxsize=100_000)
def kernel_class(name: str, kind: str = "kernel") -> str:
    """The class of a device operation; `kind`: kernel, memcpy, memset or collective."""
    if kind in ("memcpy", "memset"):
        return kind
    return next((found for found, pattern in PATTERNS if pattern.search(name)), "other")


def is_communication(kind: str) -> bool:
    return kind in COMMUNICATION_CLASSES


CallEffect = Literal["work", "record", "stream_wait", "stream_sync", "event_sync", "device_sync", "nothing"]

RUNTIME_PREFIX = re.compile(r"^(cuda|hip|cu|musa|mu|ze|ur|sycl|aclrt)(?=[A-Z])")
NAMED_EFFECTS: dict[str, CallEffect] = {
    "EventRecord": "record",
    "EventRecordWithFlags": "record",
    "StreamWaitEvent": "stream_wait",
    "StreamSynchronize": "stream_sync",
    "EventSynchronize": "event_sync",
    "DeviceSynchronize": "device_sync",
    "CtxSynchronize": "device_sync",
    "Free": "device_sync",  # implicitly synchronises with the device
    "FreeHost": "device_sync",
    "SynchronizeStream": "stream_sync",  # Ascend
    "SynchronizeDevice": "device_sync",
    "StreamWaitEventWithTimeout": "stream_wait",
    "QueueFinish": "device_sync",  # SYCL's unified runtime
    "EventWait": "event_sync",
}
WORK_PATTERN = re.compile(r"Launch|Memcpy|Memset|MemPrefetch|Enqueue|Execute|CommandListAppend")


@lru_cache(maxsize=10_000)
def call_effect(name: str) -> CallEffect:
    """The effect of a call on streams."""
    if COLLECTIVE_CALL.match(name):
        return "work"
    plain, found = RUNTIME_PREFIX.subn("", name)
    plain = re.sub(r"_(v\d+|ptsz|spt)$", "", plain)
    if not found:
        return "nothing"
    if plain in NAMED_EFFECTS:
        return NAMED_EFFECTS[plain]
    return "work" if WORK_PATTERN.search(plain) else "nothing"


GARBAGE = "garbage collection"
LOADER_NAMES = re.compile(
    r"data_?loader|data_?load|load_?(data|batch)|next_batch|get_batch|fetch_batch|prefetcher", re.IGNORECASE
)
GARBAGE_NAMES = re.compile(r"\bgc[.:_ ]|^gc$|garbage|<built-in function collect>", re.IGNORECASE)


@lru_cache(maxsize=100_000)
def host_kind(name: str) -> str:
    """Data loader or garbage collection; else the name."""
    return GARBAGE if GARBAGE_NAMES.search(name) else LOADER if LOADER_NAMES.search(name) else name
