"""What calls of the device runtime do to streams, by name: CUDA runtime, CUDA driver and HIP."""

import re
from typing import Literal

CallEffect = Literal["work", "record", "stream_wait", "stream_sync", "event_sync", "device_sync", "nothing"]

RUNTIME_PREFIX = re.compile(r"^(cuda|hip|cu)(?=[A-Z])")
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
}
WORK_PATTERN = re.compile(r"Launch|Memcpy|Memset|MemPrefetch")


def call_effect(name: str) -> CallEffect:
    """The effect of a call on streams."""
    plain, found = RUNTIME_PREFIX.subn("", name)
    plain = re.sub(r"_(v\d+|ptsz|spt)$", "", plain)
    if not found:
        return "nothing"
    if plain in NAMED_EFFECTS:
        return NAMED_EFFECTS[plain]
    return "work" if WORK_PATTERN.search(plain) else "nothing"
