"""Spellings of model names, resolved to names of shipped specs."""

import re
from collections.abc import Iterable
from functools import lru_cache

# Patterns of a name in plain form (see `plain_words`): the first match names the spec; `{1}` is its first group.
ALIASES: tuple[tuple[str, str], ...] = (
    (r"\bllama 4 (scout|maverick)|\b(scout|maverick)\b", "llama-4-{1}"),
    (r"\bllama 3(?: [1-3])? (8|70) b\b", "llama-3-{1}b"),
    (r"\bllama 3(?: [1-3])? 405 b\b", "llama-3.1-405b"),
    (r"\bllama 2 34 b\b|\bcode ?llama 34 b\b", "code-llama-34b"),  # what Llama 2's unpublished 34B became
    (r"\bllama 2 (7|13|70) b\b", "llama-2-{1}b"),
    (r"\bllama (?:1 )?(7|13|30|33|65) b\b", "llama-2-{1}b"),  # 7B and 13B are of Llama 2's shape
    (r"\b(8|70) b .*llama 3\b", "llama-3-{1}b"),
    (r"\b(?:mixtral|mistral) 8 x (7|22) b\b|\bmixtral 8 x (7|22)\b", "mixtral-8x{1}b"),
    (r"\bmistral (?:v ?0 )?7 b\b|\bmistral 7 b\b", "mistral-7b"),
    (r"\bqwen 3 5 (?:vl )?27 b\b", "qwen3.5-27b"),
    (r"\bllava (?:v ?)?1 5 7 b\b", "llava-1.5-7b"),
    (r"\bllama 3 2 (?:v |vision )?(11|90) b\b", "llama-3.2-vision-{1}b"),
    (r"\bqwen 3 (30) b(?: a 3 b)?\b", "qwen3-{1}b-a3b"),
    (r"\bqwen 3 (235) b(?: a 22 b)?\b", "qwen3-{1}b-a22b"),
    (r"\bqwen 3 (\d+(?: \d+)?) b\b", "qwen3-{1}b"),
    (r"\bqwen (2 5|2|1 5) (\d+(?: \d+)?) b\b", "qwen{1}-{2}b"),
    (r"\bdeep ?seek ?v 2 lite\b", "deepseek-v2-lite"),
    (r"\bdeep ?seek ?(?:v 3|r 1)\b", "deepseek-v3"),
    (r"\bkimi ?k 2\b", "kimi-k2"),
    (r"\bgpt ?oss (20|120) b\b", "gpt-oss-{1}b"),
    (r"\bintern ?lm (?:1 )?(7|20) b\b", "internlm-{1}b"),
    (r"\bnemotron 4 (15|22|340) b\b|\bnemotron (15|22|340) b\b", "nemotron-4-{1}b"),
    (r"\bnemotron h (8|56) b\b", "nemotron-h-{1}b"),
    (r"\bmpt (125|350|760) m\b", "mpt-{1}m"),
    (r"\bmpt (1|3|7|13|30|70) b\b", "mpt-{1}b"),
    (r"\bgpt ?3 (?:model )?(\d+(?: \d+)?) b\b", "gpt3-{1}b"),
    (r"^nemo megatron(?: (?:gpt ?3? ?)?(?:175 b)?)?$|\bgpt 3 ?$", "gpt3-175b"),  # the recipe that DGXC calls so
    (r"\b(?:nemo|nvidia) (?:gpt )?gpt (?:3 )?(\d+) b\b|\bgpt (175) b\b", "gpt3-{1}b"),
    (r"\bk 2 65 b\b", "k2-65b"),
)
# Patterns of models whose layers have no cost model here, unless a shipped spec has them, and the name of that kind.
RECURRENT = r"\bmamba|\bssm\b|nemotron nano|nemotron 3\b|\bjamba|hybrid|\brwkv|\bretnet|delta ?net|zamba"
IMAGES = r"\bvit\b|\bvision|\bllava|\bclip\b|\bvlm?\b|multi ?modal|\bmllm|internvl|\bneva\b|\bomni\b|\bocr\b"
SEVERAL_MODULES, RECURRENT_LAYERS = "several modules", "recurrent layers"
UNDESCRIBED_LAYERS: tuple[tuple[str, str], ...] = (
    (r"\bul 2\b|\bbart\b", "encoder and decoder"),
    (r"\b(?:\w+bert\w*|\w*bert\w+)\b|\bencoder only\b", "encoder"),
    (rf"{RECURRENT}|qwen 3 (next|5\b(?! b))", RECURRENT_LAYERS),
    (r"deep ?seek ?v (3 2|4)\b", "sparse attention"),
    (r"\bwan\b|\bdit\b|\bflux|diffusion|\bsd ?xl|\bsora|\bvideo\b|\bunet\b|hunyuan", "diffusion"),
    (rf"{IMAGES}|whisper|audio", SEVERAL_MODULES),
    (r"\bdlrm|recommend|\bresnet|\bgnn\b", "no transformer"),
)


# Shipped specs whose bare name others use for other shapes.
AMBIGUOUS_NAMES = re.compile(r"^(gpt|tiny)\b")


@lru_cache(maxsize=4096)
def plain_words(*names: str) -> str:
    """Lower-case words with letters and digits separated: `Llama3.1_405B` as `llama 3 1 405 b`."""
    words = re.findall(r"[a-z]+|[0-9]+", " ".join(names).lower())
    return " ".join(words)


def undescribed_layers(*names: str) -> str:
    """The kind of layers that this model has and few specs describe, if any; empty where it has none."""
    text = plain_words(*names)
    return next((kind for words, kind in UNDESCRIBED_LAYERS if re.search(words, text)), "")


def spec_name(model: str, family: str, spec_names: Iterable[str]) -> str | None:
    """The shipped spec that a name means; None where there is none."""
    by_words, text = {plain_words(name): name for name in spec_names}, plain_words(model)
    if text in by_words and not AMBIGUOUS_NAMES.search(text):
        return by_words[text]
    for pattern, name in ALIASES:
        match = re.search(pattern, text) or re.search(pattern, f"{plain_words(family)} {text}")
        if match:
            groups = [group for group in match.groups() if group]
            for number, group in enumerate(groups, start=1):
                name = name.replace(f"{{{number}}}", group.replace(" ", "."))
            return name if name in by_words.values() else None
    inside = [words for words in by_words if f" {words} " in f" {text} " and not AMBIGUOUS_NAMES.search(words)]
    return by_words[max(inside, key=len)] if inside else None
