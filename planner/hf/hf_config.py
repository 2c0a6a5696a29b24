"""A config.json whose values are read by key and type; keys that no reader asks for are reported as notes."""

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from planner import files
from planner.errors import InputError

T = TypeVar("T")
MOST = 10**9  # as in a model's file
LONGEST = 60  # characters of a value that a note quotes
# Keys without effect on shapes or mathematics: names, tokens, files, initialisation, generation, caches.
IGNORED_KEYS = {
    "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation", "_name_or_path",
    "add_cross_attention", "architectures", "auto_map", "bad_words_ids", "begin_suppress_tokens", "bos_token_id",
    "chunk_size_feed_forward", "classifier_proj_size", "cross_attention_hidden_size", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "dtype", "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id",
    "ep_size", "exponential_decay_length_penalty", "finetuning_task", "forced_decoder_ids", "gradient_checkpointing",
    "id2label", "init_std", "initializer_factor", "initializer_range", "is_encoder_decoder", "label2id",
    "length_penalty", "mask_feature_length", "mask_feature_min_masks", "mask_feature_prob", "mask_time_length",
    "mask_time_min_masks", "mask_time_prob", "max_length", "max_position_embeddings", "median_filter_width",
    "min_length", "model_type", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences",
    "output_attentions", "output_hidden_states", "output_router_logits", "output_scores", "pad_token_id", "prefix",
    "pretraining_tp", "problem_type", "projection_dim", "pruned_heads", "remove_invalid_values",
    "reorder_and_upcast_attn", "repetition_penalty", "return_dict", "return_dict_in_generate", "rope_interleave",
    "router_aux_loss_coef", "sep_token_id", "spatial_patch_size", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "summary_type", "summary_use_proj", "suppress_tokens", "task_specific_params",
    "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class", "tokens_per_second", "top_k", "top_p",
    "torch_dtype", "torchscript", "transformers_version", "typical_p", "use_bfloat16", "use_cache",
}  # fmt: skip


class Note(NamedTuple):
    """A difference between the source and the spec."""

    kind: Literal["left out", "added", "assumed"]
    what: str
    parameters: int = 0  # parameters of the source minus those of the spec
    key: str = ""  # of the config.json, where it is a value that the spec cannot have


@dataclass(slots=True)
class HfConfig:
    """One mapping of a config.json, with the defaults that its model family has for absent keys."""

    values: Mapping[str, Any]
    name: str  # of the file
    route: str = ""  # path of this mapping in the file: `text_config.`
    defaults: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)  # shared by all mappings of a file
    read_keys: set[str] = field(default_factory=set)
    used_defaults: dict[str, int] = field(default_factory=dict)
    sections: "list[HfConfig]" = field(default_factory=list)

    def section(self, key: str) -> "HfConfig":
        """The mapping under a key."""
        value = self.value(key)
        if not isinstance(value, dict):
            raise self.wrong_value(key, "a mapping")
        self.sections.append(HfConfig(value, self.name, f"{self.route}{key}.", notes=self.notes))
        return self.sections[-1]

    def assume(self, **values: Any) -> "HfConfig":
        """Adds defaults for absent keys, which earlier defaults override; returns itself."""
        self.defaults = values | self.defaults
        return self

    def assume_within(self, **values: Any) -> "HfConfig":
        """Assumptions for a mapping within a file, which states what is unusual; whole files state their shape."""
        return self.assume(**values) if self.route else self

    def named(self, key: str) -> str:
        """Which of several names of a key, as `head_dim|attention_head_dim`, the file has; else the first."""
        names = key.split("|")
        self.read_keys.update(names)
        return next((name for name in names if name in self.values), names[0])

    def value(self, key: str) -> Any:
        """The value of a key, or its default. Raises InputError where there is neither."""
        key = self.named(key)
        if key in self.values:
            return self.values[key]
        if key not in self.defaults:
            raise self.key_error(key, f"`{key}` is missing", "add it, or give the whole config.json")
        return self.defaults[key]

    def count(self, key: str, most: int = MOST) -> int:
        """A whole number from 1 to `most`."""
        value, key = self.value(key), self.named(key)
        if type(value) is not int or not 1 <= value <= most:
            raise self.wrong_value(key, f"a whole number from 1 to {most:,}")
        if key not in self.values and value > 1:
            self.used_defaults[key] = value
        return value

    def count_or_none(self, key: str) -> int | None:
        """A whole number from 1 on; None for null, 0, or an absent key."""
        return self.count(key) if self.assume(**{self.named(key): None}).value(key) not in (None, 0) else None

    def positive_or_none(self, key: str) -> int | None:
        """A whole number from 1 on; None for null, or an absent key."""
        return self.count_or_none(key) if self.assume(**{self.named(key): None}).value(key) != 0 else self.count(key)

    def number(self, key: str) -> float:
        """A number from 0 to 1e15."""
        value = self.value(key)
        if type(value) not in (int, float) or not 0 <= value <= 1e15:
            raise self.wrong_value(key, "a number from 0 to 1e15")
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; null is false."""
        value = self.value(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.wrong_value(key, "true or false")
        return value

    def text(self, key: str) -> str:
        """A text."""
        value = self.value(key)
        if not isinstance(value, str):
            raise self.wrong_value(key, "a word")
        return value

    def numbers(self, key: str) -> list[int]:
        """A list of whole numbers; null is an empty one."""
        value = self.value(key) or []
        if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
            raise self.wrong_value(key, "a list of whole numbers")
        return value

    def expect(self, key: str, accepted: Collection[Any]) -> None:
        """Notes a value that is none of these."""
        value = self.value(key)
        if not any(value == each and type(value) is type(each) for each in accepted):
            self.leave_out_key(key)

    def leave_out_key(self, key: str) -> None:
        """Notes a key whose value the spec cannot have."""
        self.notes.append(Note("left out", f"{self.route}{key} {quoted_json(self.value(key))}", key=key))

    def leave_out(self, what: str, parameters: int = 0) -> None:
        """Notes what the spec does not have, and how many parameters that is."""
        self.notes.append(Note("left out", what, parameters))

    def add(self, what: str, parameters: int) -> None:
        """Notes what only the spec has, and how many parameters that is."""
        self.notes.append(Note("added", what, -parameters))

    def assumption(self, what: str) -> None:
        """Notes what the spec has in another way than the source."""
        self.notes.append(Note("assumed", what))

    def made(self, kind: Callable[..., T], key: str, **fields: Any) -> T:
        """A spec of these fields. Raises InputError, at this key, where they do not fit together."""
        try:
            return kind(**fields)
        except ValueError as error:
            what, _, fix = str(error).partition(" | ")
            raise self.key_error(key, what, fix) from error

    def wrong_value(self, key: str, wanted: str) -> InputError:
        """The error for a value of the wrong type or range."""
        key = self.named(key)
        return self.key_error(
            key, f"{quoted_json(self.values.get(key, self.defaults.get(key)))} is not {wanted}", f"give {wanted}"
        )

    def key_error(self, key: str, message: str, fix: str) -> InputError:
        """The error for a key, with its place in the file."""
        return InputError(message, where=f"{self.name} ({self.route}{self.named(key)})", fix=fix)

    def note_unread_keys(self) -> None:
        """Notes defaults that were used, and keys with a meaning that no reader asked for: none is dropped silently."""
        if self.used_defaults:
            defaults = ", ".join(f"{self.route}{key} {value}" for key, value in self.used_defaults.items())
            self.notes.append(Note("assumed", f"as usual for this kind: {defaults}"))
        for key, value in self.values.items():
            if key not in self.read_keys and key not in IGNORED_KEYS and value:
                self.leave_out_key(key)
        for part in self.sections:
            part.note_unread_keys()


def quoted_json(value: Any) -> str:
    """A value as JSON, shortened for a note."""
    text = json.dumps(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def read_config(path: Path) -> HfConfig:
    """The config.json at `path`, or in the folder there. Raises InputError."""
    path = path / "config.json" if os.path.isdir(path) else path
    values = files.read_json(path, "give the config.json of a model", infinite=True)
    if not isinstance(values, dict):
        raise InputError(
            "this is no config.json: not a mapping", where=str(path), fix="give the config.json of a model"
        )
    return HfConfig(values, str(path))
