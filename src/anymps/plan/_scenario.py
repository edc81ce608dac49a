"""What if: the changes to a script that a plan tries without editing it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Final

from anymps._errors import UsageError
from anymps._numbers import whole

PRECISIONS: Final = ("bfloat16", "float16")
WEIGHTS: Final = ("nf4", "int8")
"""How bitsandbytes may keep the weights of linear layers."""

RANK: Final = 16
"""Of the LoRA adapters that are assumed where the script trains the weights that are to be quantised."""

OPTIMIZERS: Final = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
}
"""What may replace an optimizer, and how it is called."""

WORDS: Final = {
    "checkpoint": "checkpoint=on",
    "bf16": "precision=bfloat16",
    "fp16": "precision=float16",
    "nf4": "weights=nf4",
    "int8": "weights=int8",
    "fused": "fused=on",
    "unfused": "fused=off",
    "sgd": "optimizer=sgd",
    "adam": "optimizer=adam",
    "adamw": "optimizer=adamw",
}
"""Short forms that a command line may use."""


@dataclass(frozen=True)
class Scenario:
    """One way to run the script. None leaves a thing as the script has it.

    `batch` and `sequence` are sizes of the data loader's batches, in samples and in tokens; `accumulate` splits each
    batch in so many parts; `precision` is autocast's dtype; `weights` keeps those of linear layers quantised;
    `checkpoint` recomputes repeated blocks in the backward; `fused` chooses the fused or the for-loop implementation of
    the optimizer; `optimizer` replaces Adam, AdamW or SGD.
    """

    batch: int | None = None
    sequence: int | None = None
    accumulate: int | None = None
    precision: str | None = None
    weights: str | None = None
    checkpoint: bool = False
    fused: bool | None = None
    optimizer: str | None = None

    @property
    def label(self) -> str:
        """`as written`, or what differs: `batch 8, bfloat16 autocast`."""
        parts = []
        if self.batch is not None:
            parts.append(f"batch {self.batch}")
        if self.sequence is not None:
            parts.append(f"sequence {self.sequence}")
        if self.accumulate is not None:
            parts.append(f"accumulation over {self.accumulate}")
        if self.precision is not None:
            parts.append(f"{self.precision} autocast")
        if self.weights is not None:
            parts.append(f"{self.weights} weights")
        if self.checkpoint:
            parts.append("activation checkpointing")
        if self.fused is not None:
            parts.append("fused optimizer" if self.fused else "for-loop optimizer")
        if self.optimizer is not None:
            parts.append(OPTIMIZERS[self.optimizer])
        return ", ".join(parts) or "as written"


def parse_scenario(text: str) -> Scenario:
    """The scenario that a text such as `batch=8,checkpoint,bf16` names.

    Raises UsageError, in one line, for a word or a value that is not known.
    """
    scenario = Scenario()
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = WORDS.get(word, word).partition("=")
        scenario = replace(scenario, **{name: _value(name, value, word)})
    return scenario


def _value(name: str, value: str, word: str) -> Any:
    if name in ("batch", "sequence", "accumulate"):
        number = whole(value)
        if not number:
            raise UsageError(f"--what-if {word}: {name} is a number of 1 or more, as in {name}=8")
        return number
    if name in ("checkpoint", "fused"):
        if value not in ("on", "off", ""):
            raise UsageError(f"--what-if {word}: {name} is on or off")
        return value != "off"
    choices = {"precision": PRECISIONS, "weights": WEIGHTS, "optimizer": tuple(OPTIMIZERS)}.get(name)
    if choices is None:
        numbers = [f"{field.name}=N" for field in fields(Scenario) if field.name in ("batch", "sequence", "accumulate")]
        raise UsageError(f"--what-if {word!r} is not known; known: {', '.join([*numbers, *WORDS])}")
    if value not in choices:
        raise UsageError(f"--what-if {word}: {name} is one of {', '.join(choices)}")
    return value
