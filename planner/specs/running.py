"""What a run is told, in one wording: the options that `planner run` and `python -m planner.runtime` share."""

from planner.specs.parallelism import Dtype

DTYPES: tuple[Dtype, ...] = ("bf16", "float32", "float64")  # in which a run computes: not all that can be planned

MEANING = {
    "steps": "Optimizer steps in all; the plan's own if left out.",
    "verify": "Compare loss and gradients with one process.",
    "dtype": "Instead of the plan's.",
    "learning_rate": "Of AdamW, at its highest.",
    "schedule": "Of the learning rate, after its warm-up.",
    "warmup": "Steps in which the learning rate rises.",
    "clip": "Largest norm of all gradients together.",
    "betas": "Of AdamW.",
    "weight_decay": "Of matrices.",
    "max_time": "The run ends behind the first step over by then: 90s, 10m, 1h30m; a number alone is seconds.",
    "metrics": "Add a JSON line for each step to this file.",
    "data": "A folder of tokens (tokens.npy, offsets.npy); without it items are synthetic.",
    "weights": "A folder with model.safetensors of Hugging Face, from which the decoder starts.",
    "save": "A folder for what was trained: --resume goes on with it, and --weights reads a decoder.",
    "save_every": "Also behind each so many steps.",
    "resume": "Go on with what --save wrote, under this plan or another of the model; --steps counts all.",
    "memory_snapshot": "GPUs only: a folder for the history of every GPU's memory, for pytorch.org/memory_viz.",
    "seed": "Of weights and synthetic data.",
}
