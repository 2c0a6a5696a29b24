"""What calls of the device runtime do to streams, by name: CUDA runtime, CUDA driver and HIP."""

import re
from typing import Literal

Does = Literal["work", "record", "stream_wait", "stream_sync", "event_sync", "device_sync", "nothing"]

PREFIX = re.compile(r"^(cuda|hip|cu)(?=[A-Z])")
EXACT: dict[str, Does] = {
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
WORK = re.compile(r"Launch|Memcpy|Memset|MemPrefetch")


def does(name: str) -> Does:
    """The effect of a call on streams."""
    plain, found = PREFIX.subn("", name)
    plain = re.sub(r"_(v\d+|ptsz|spt)$", "", plain)
    if not found:
        return "nothing"
    if plain in EXACT:
        return EXACT[plain]
    return "work" if WORK.search(plain) else "nothing"
