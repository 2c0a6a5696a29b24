"""A server of models, vLLM: fields of an instance ↔ arguments of `vllm serve`; and the script that starts instances.

Names and values are those of `EngineArgs` in vLLM 0.33.0 (vllm/engine/arg_utils.py). Features of images go from
encoders to others through a folder that all can reach, keys and values by NIXL; a proxy is vLLM's own example
(examples/disaggregated/disaggregated_encoder/disagg_epd_proxy.py).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from planner.targets.rows import Fields, Row, Stated, number, read_rows, switch, switches, word, write_rows

CHECKED = "vLLM 0.33.0"
FEATURES = (
    '{{"ec_connector":"ECExampleConnector","ec_role":"{}",'
    '"ec_connector_extra_config":{{"shared_storage_path":"/tmp/features"}}}}'
)
KEYS = '{{"kv_connector":"NixlConnector","kv_role":"{}"}}'
FIRST_PORT = 8100
FIRST_SIDE_PORT = 5600  # of NIXL's handshakes


def sends_images(fields: Fields) -> bool:
    return "features" in fields


def sends_keys(fields: Fields) -> bool:
    return "keys" in fields


VLLM_ROWS: tuple[Row, ...] = (
    number("tp", "--tensor-parallel-size", 1),
    number("answers", "--max-num-seqs"),
    number("tokens", "--max-num-batched-tokens"),
    number("memory", "--gpu-memory-utilization", kind=float),
    switches(("chunked",), {True: ("--enable-chunked-prefill",), False: ("--no-enable-chunked-prefill",)}),
    switches(("prefixes",), {True: ("--enable-prefix-caching",), False: ("--no-enable-prefix-caching",)}),
    word("order", "--scheduling-policy", {"fifo": "fcfs", "shortest": "priority"}, "fifo"),
    switch("encoder_only", "--mm-encoder-only"),
    word(
        "features",
        "--ec-transfer-config",
        {each: FEATURES.format(f"ec_{each}") for each in ("producer", "consumer")} | {"none": "none"},
        "none",
        sends_images,
    ),
    word(
        "keys",
        "--kv-transfer-config",
        {each: KEYS.format(f"kv_{each}") for each in ("producer", "consumer")} | {"none": "none"},
        "none",
        sends_keys,
    ),
)


class Served(NamedTuple):
    """An instance to start: on which node, with which of its GPUs, and how."""

    name: str
    node: int
    gpus: tuple[int, ...]
    fields: Mapping[str, Any]


def vllm_arguments(fields: Fields) -> dict[str, tuple[str, ...]]:
    """The arguments of an instance."""
    return write_rows(VLLM_ROWS, fields)


def vllm_fields(arguments: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The fields of an instance's arguments. Raises InputError."""
    known: dict[str, Any] = {}
    for name, argument in (("features", "--ec-transfer-config"), ("keys", "--kv-transfer-config")):
        if argument in arguments:
            known[name] = "none"
    return read_rows(VLLM_ROWS, Stated(arguments), known)


def vllm_lines(served: Iterable[Served]) -> list[str]:
    """The commands that start instances, one a line."""
    lines = []
    for number_, each in enumerate(served):
        words = " ".join(
            " ".join((argument, *(f"'{value}'" if value.startswith("{") else value for value in values)))
            for argument, values in vllm_arguments(each.fields).items()
        )
        visible = f"CUDA_VISIBLE_DEVICES={','.join(map(str, each.gpus))}"
        side = f"VLLM_NIXL_SIDE_CHANNEL_PORT={FIRST_SIDE_PORT + 8 * number_} " if "keys" in each.fields else ""
        lines.append(f'{side}{visible} vllm serve "$MODEL" --port {FIRST_PORT + number_} {words} &')
    return lines


def vllm_script(served: Iterable[Served], about: Iterable[str]) -> str:
    """A script that starts the instances of one node, and ends with them."""
    listed = [*served]
    nodes = sorted({each.node for each in listed})
    lines = ["#!/bin/bash", *(f"# {line}" for line in about), "set -euo pipefail"]
    lines.append("MODEL=${MODEL:?the folder of the weights, or their name}")
    if len(nodes) > 1:
        lines.append("NODE=${NODE:?the number of this node, from 0}")
    commands = vllm_lines(listed)
    for node in nodes:
        own = [f"# {each.name}\n{line}" for each, line in zip(listed, commands, strict=True) if each.node == node]
        if len(nodes) > 1:
            own = [f'if [ "$NODE" = {node} ]; then', *own, "fi"]
        lines += own
    return "\n".join([*lines, "wait", ""])
