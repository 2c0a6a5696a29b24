"""A question, answer by answer: each is checked before the next is asked for."""

import os
from dataclasses import replace
from pathlib import Path

from planner.errors import InputError
from planner.specs.layers.stack import InputUnit
from planner.specs.named_files import read_software
from planner.workflows.question_samples import asked_clips, asked_images
from planner.workflows.questions import Question, question_cluster, question_lengths, question_model


def with_model(question: Question, text: str) -> Question:
    """The question of this model: a name, a model file, or a config.json. Raises InputError."""
    is_config = Path(text).suffix == ".json" or os.path.isdir(Path(text))
    answered = replace(question, hf=Path(text)) if is_config else replace(question, model=text)
    question_model(answered)
    return answered


def with_gpus(question: Question, text: str) -> Question:
    """The question on these GPUs. Raises InputError."""
    answered = replace(question, gpus=text)
    question_cluster(answered)
    return answered


def with_nics(question: Question, text: str) -> Question:
    """The question with these adapters in a node; empty: as is usual. Raises InputError."""
    answered = replace(question, nics=text or None)
    question_cluster(answered)
    return answered


def with_lengths(question: Question, text: str) -> Question:
    """The question with these lengths. Raises InputError."""
    answered = replace(question, lengths=text)
    question_lengths(answered)
    return answered


def reads(question: Question, unit: InputUnit) -> bool:
    """Whether a module of the model reads `patches` of images, or `frames` of sound. Raises InputError."""
    return any(module.input_unit == unit for module in question_model(question).modules.values())


def with_images(question: Question, text: str) -> Question:
    """The question with these images in each sample; empty: none. Raises InputError."""
    asked_images(text)
    return replace(question, images=text)


def with_audio(question: Question, text: str) -> Question:
    """The question with these clips of sound in each sample; empty: none. Raises InputError."""
    asked_clips(text)
    return replace(question, audio=text)


def with_batch(question: Question, text: str) -> Question:
    """The question with so many sequences in a step. Raises InputError."""
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 10**6):
        raise InputError(f"`{text[:40]}` is no number of sequences", fix="a whole number, such as 512")
    return replace(question, batch=int(text))


def with_software(question: Question, text: str) -> Question:
    """The question for this training framework. Raises InputError."""
    read_software(text)
    return replace(question, software=text)
