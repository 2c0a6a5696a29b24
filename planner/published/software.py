"""Which training software a record ran, among those that are described in profiles/software."""

import re

from planner.published.rows import Row

USUAL = "generic"  # what is common to all that were fitted
# The first whose words a row's framework contains.
NAMES = (
    (r"primus", "primus"),
    (r"torch ?titan", "torchtitan"),
    (r"intern ?evo|internlm", "internevo"),
    (r"nemo|megatron[- ]?bridge|dgxc|mbridge|maxtext[- ]nemo", "nemo"),
    (r"megatron[- ]?deepspeed|deepspeed|zero[- ]?[123]\b|colossal|xtuner|llama[- ]?factory|axolotl", "deepspeed"),
    (r"fsdp|fms|foundation[- ]model|llm[- ]?foundry|mosaic|composer|lit[- ]?gpt|accelerate|torchtune|veomni", "fsdp"),
    (r"megatron|mcore|pai[- ]|alpa\b|galvatron", "megatron"),
)
# Before these dates Megatron-LM had no flash attention: its use began in 2023 (release core_r0.2.0 and after).
OLD = re.compile(r"\b(20(?:19|20|21|22))\b|arxiv[: ]*(?:19|20|21|22)\d\d\.")


def software(record: Row) -> str:
    """A file of profiles/software; the generic one where nothing is recognised.

    Megatron of a record dated before 2023 is `megatron-2021`.
    """
    text = f"{record.text('framework')}".lower()
    name = next((name for words, name in NAMES if re.search(words, text)), None)
    if name is None:
        name = next((name for words, name in NAMES if re.search(words, record.text("source_ref").lower())), USUAL)
    dated = f"{record.text('date_or_version')} {record.text('source_ref')}".lower()
    if name == "megatron" and OLD.search(dated):
        return "megatron-2021"
    return name
