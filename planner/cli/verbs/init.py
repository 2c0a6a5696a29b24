"""`planner init`: the questions of `planner ask` one by one, and the files of the job that they become."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.errors import InputError
from planner.printable import one_line, printable

if TYPE_CHECKING:
    from planner.workflows.questions import Question

Answered = Callable[["Question", str], "Question"]


def init() -> None:
    """Ask for model, GPUs, lengths and software one by one, and write the job to solve."""
    from planner.workflows import answers, questions

    question = questions.Question(batch=1)
    seen = partial(answers.reads, unit="patches")
    heard = partial(answers.reads, unit="frames")
    for text, default, answered, asked in (
        ("Model: a name (planner list models), a model file, or a config.json", None, answers.with_model, always),
        ("GPUs in all, such as 64xh100", None, answers.with_gpus, always),
        ("Adapters of a node, such as 8x400Gb; empty: as is usual", "", answers.with_nics, always),
        ("Lengths: tokens of every sequence, a distribution, or a file", None, answers.with_lengths, always),
        ("Images of each sample, such as 1280x960; empty: none", "", answers.with_images, seen),
        ("Seconds of sound of each sample, such as 7.2; empty: none", "", answers.with_audio, heard),
        ("Sequences of a step", None, answers.with_batch, always),
        ("Training framework; any: launch or not", "planner", answers.with_software, always),
    ):
        question = prompted(question, text, default, answered) if asked(question) else question
    folder = typer.prompt("Folder", default=one_line(questions.question_name(question)))
    job = questions.write_question(question, Path(folder))
    typer.echo(printable(f"written: {job}\nnext: planner solve {job}"))


def always(question: "Question") -> bool:
    """Whether an answer is asked for whichever model there is: it is."""
    return True


def prompted(question: "Question", text: str, default: str | None, answered: Answered) -> "Question":
    """The question with one more answer; asks again until there is one that can be used."""

    def use(answer: str) -> "Question":
        try:
            return answered(question, answer.strip())
        except InputError as error:
            raise typer.BadParameter(one_line(f"{error.message}; {error.fix}")) from error

    with_answer: Question = typer.prompt(text, default=default, value_proc=use, show_default=bool(default))
    return with_answer
