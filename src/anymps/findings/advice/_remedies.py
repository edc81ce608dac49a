"""Remedies that several rules have, each in one wording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anymps._text import base_name

WAITS: Final = "waits until the GPU has finished all queued work"
ON_THE_CPU: Final = "Run this call on the CPU: `.cpu()` before it, `.to(device)` after it."
PREFER_MPS: Final = "Prefer mps where the device is chosen"
EVERYWHERE: Final = f"{PREFER_MPS}, and use that device everywhere: `.to(device)`."
MAIN_GUARD: Final = 'Move the code of the script into `def main():` and call it under `if __name__ == "__main__":`.'
AT_TOP_LEVEL: Final = (
    "Define it as a function at the top level of a module, and bind arguments with `functools.partial`."
)
CPU_DATA_SET: Final = "Keep the data set on the CPU, and move each batch in the loop: `x.to(device)`."
DATA_SET_ON_MPS: Final = "If it fits, keep the data set on mps and take the batch there."
ON_DEVICE: Final = "Create it on the device (`device=x.device`)"
BUFFER: Final = "In a module make it a buffer (`register_buffer`), which the module's `.to()` moves."
EVERY_10: Final = "every 10 steps or after the loop"
PRINT_EVERY_10: Final = "Print or log every 10 steps"
KEEP_MASK: Final = (
    "Keep the mask instead of indexing: a sum is `torch.where(mask, x, 0).sum()`, a mean is that divided by "
    "`mask.sum()`."
)
SELDOM_TEST: Final = "If the test only reports or ends the run"
FUSED: Final = "Pass `fused=True` to the optimizer"
FIXED_SIZES: Final = (
    "Bring inputs to a few fixed sizes: resize or crop images, pad sequences to a multiple of 64, sort by length."
)
LESS_MEMORY: Final = "Use a smaller batch with gradient accumulation, shorter sequences, or activation checkpointing."


def move_module(kept: object, when: str) -> str:
    """What to do about a tensor that a module holds as a `kept`, such as a parameter."""
    return f"It is a {kept} of its module: move the module to mps {when}."


def add_up(code: str, total: str) -> str:
    """What to do about a sum of numbers that a loop reads, by the code that adds on the device."""
    return f"Add up on the device, `{code}`, and read {total} {EVERY_10}."


def keep_numbers(name: str = "") -> str:
    """What to do about tensors that pile up, in a variable where its name is known."""
    place = f" in `{name}`" if name else ""
    return f"Keep numbers{place}: `.item()` now and then, or `.detach().cpu()`."


def without_graph(name: str = "") -> str:
    """What to do about results that pile up with their graphs."""
    place = f" in `{name}`" if name else ""
    return (
        f"Keep tensors without their graph{place}, as by `total = total + loss.detach()`, or compute them under "
        "`torch.no_grad()`."
    )


def index_on_device(name: str = "") -> str:
    """What to do about an index that is on the CPU."""
    index = f"`{name}`" if name else "the index"
    return (
        f"Create {index} on the device, or copy it to mps once, before the loop; `torch.randperm(n, device=device)` "
        "draws there."
    )


@dataclass(frozen=True)
class Equivalent:
    """`instead` computes the same as `call`, with MPS kernels only. Both are Python expressions."""

    call: str
    instead: str


EQUIVALENTS: dict[str, Equivalent] = {
    "channel_shuffle": Equivalent("F.channel_shuffle(x, g)", "x.unflatten(1, (g, -1)).transpose(1, 2).flatten(1, 2)"),
    "heaviside": Equivalent("torch.heaviside(x, v)", "torch.where(x == 0, v, (x > 0).to(x.dtype))"),
    "logspace": Equivalent("torch.logspace(a, b, n)", "10.0 ** torch.linspace(a, b, n)"),
    "put": Equivalent("x.put_(i, v)", "x.view(-1)[i] = v"),
    "take": Equivalent("torch.take(x, i)", "x.flatten()[i]"),
}
"""What to write instead of an operator without an MPS kernel, with those that have one since 2.11, by its base name."""


def equivalent(operator: str) -> Equivalent | None:
    """What to write instead of `operator` (`aten::heaviside.out`), if something is known."""
    return EQUIVALENTS.get(base_name(operator))
