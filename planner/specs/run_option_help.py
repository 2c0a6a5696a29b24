"""Help texts of the options that `planner run` and `python -m planner.runtime` share."""

from typing import Literal

from planner.specs.parallelism import Dtype

OnSpike = Literal["log", "rollback"]  # what follows a malignant spike of the loss

RUN_DTYPES: tuple[Dtype, ...] = ("bf16", "float32", "float64")  # that the runtime computes in; plans can have more

OPTION_HELP = {
    "steps": "Number of optimizer steps; by default those of the plan.",
    "verify": "Compare loss and gradients with one process.",
    "dtype": "Dtype of the run instead of the plan's.",
    "learning_rate": "Peak learning rate of AdamW.",
    "schedule": "Schedule of the learning rate after its warm-up.",
    "warmup": "Steps of learning rate warm-up.",
    "clip": "Largest global norm of the gradients.",
    "betas": "Betas of AdamW.",
    "weight_decay": "Weight decay of matrices.",
    "max_time": "The run ends after the first step that is over by then: 90s, 10m, 1h30m; a plain number is seconds.",
    "metrics": "Append a JSON line for each step to this file.",
    "data": "A folder of tokens, with images and sound or without; if left out, items are synthetic.",
    "weights": "A folder with model.safetensors of Hugging Face: the decoder starts from it, and encoders that it has.",
    "allow_different": "What may differ from the config.json of --weights: a field of the model, or a key; repeatable.",
    "save": "A folder for checkpoints: --resume continues from it, and --weights reads a decoder from it.",
    "save_every": "Also save after every this many steps.",
    "keep": "How many of the last checkpoints are kept; by default the newest.",
    "keep_every": "Also keep the checkpoints after each so many steps.",
    "resume": "Continue from what --save wrote, under this plan or another of the model; --steps counts all.",
    "elastic": "Where ranks are lost, plan for those that are left and go on from the last checkpoint.",
    "features": "A folder for what the plan keeps on a disk (`features: disk`); later runs read it too.",
    "on_spike": "What follows a spike of the loss that lasts: a line in the log, or a rollback to the last checkpoint.",
    "spike_steps": "A spike of the loss lasts if it is not over after so many steps.",
    "check_replicas": "Compare states that several ranks hold, after every this many steps and before saving.",
    "record": "Record the first steps by torch.profiler into this folder, for `planner replay` and `calibrate`.",
    "memory_snapshot": "GPUs only: a folder for the history of every GPU's memory, for pytorch.org/memory_viz.",
    "seed": "Seed of weights and synthetic data.",
}
