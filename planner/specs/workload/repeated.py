"""How often a run sees its data: what outputs of frozen encoders are worth keeping for."""

from planner.specs.base import Count, Name, Spec


class Repeated(Spec):
    """Epochs over a data set, each of the same samples. What a frozen encoder makes of them is the same in every epoch
    unless its inputs are changed.
    """

    epochs: Count
    samples: Count  # of the data set: what is kept of it are as many times the mean of a batch
    augmented: tuple[Name, ...] = ()  # encoders whose inputs each epoch changes, as images that are cropped at random
