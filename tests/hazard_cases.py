"""Calls for each known bug of MPS: its example, others that meet it, and such as are nearly the same.

`data/hazard_calls.toml` has those beside the examples, in the names of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anymps._tables import read_table
from anymps.device import enforce_hazards
from anymps.rules import parse_torch_version
from anymps.rules.faults import all_hazards

F = nn.functional
M1, M3 = "apple7", "apple9"
TABLE = torch.tensor([1.0, 2.0])
DATA = Path(__file__).parent / "data"
FIRST = {hazard.id: hazard for hazard in reversed(all_hazards())}
"""The first row of each known bug."""


def calls(kind: str) -> list[tuple[str, str]]:
    """The calls of a kind, `near` or `also`: each with the bug's id, as Python text."""
    table: dict[str, str] = read_table(str(DATA / "any"), "hazard_calls.toml")[kind]
    return [(identity, line) for identity, lines in table.items() for line in lines.splitlines()]


def run(code: str) -> None:
    """Run an example or a call."""
    try:
        exec(compile(code, "example.py", "exec"), {**globals(), "device": "mps"})
    finally:
        torch.use_deterministic_algorithms(False)


def enforce(identity: str, torch: str = "", macos: tuple[int, int] | None = None, family: str = "") -> None:
    """Put in force what a Mac has that has this bug, also one with an older torch than runs here."""
    hazard = FIRST[identity]
    release = parse_torch_version(torch).release if torch else hazard.until
    macos = macos or (hazard.macos[0][0] if hazard.macos else (26, 4))
    family = family or min(hazard.metal_families, default=M3)
    enforce_hazards(tuple(known for known in all_hazards() if known.holds(release, macos, family)))


def on(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A tensor on mps."""
    return torch.ones(shape, dtype=dtype, device="mps").requires_grad_(grad)


def half(*shape: int) -> torch.Tensor:
    """The same in half precision."""
    return on(*shape, dtype=torch.float16)


def wide(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor on mps of any size, over one element."""
    return torch.ones((), dtype=dtype, device="mps").expand(shape)


def ramp(*shape: int) -> torch.Tensor:
    """A tensor on mps whose rows go evenly from -2 to 2."""
    return torch.linspace(-2, 2, shape[-1], device="mps").expand(shape).contiguous()


def matrices(count: int) -> torch.Tensor:
    """As many 3 by 3 matrices on mps that can be inverted."""
    return torch.eye(3, device="mps").expand(count, 3, 3).contiguous()


def numbers(*values: float) -> torch.Tensor:
    """These on mps."""
    return torch.tensor(values, device="mps")


def pairs() -> torch.Tensor:
    """Two points on mps, one just above 1 in its first coordinate."""
    return numbers(0.5, 0.5, 1 + 1e-6, 0.5).view(2, 2)


def last(x: torch.Tensor) -> torch.Tensor:
    """The same in channels_last."""
    return x.to(memory_format=torch.channels_last)


def linear(rows: int, grad: bool) -> None:
    """Forward and backward of a layer of 16 to 16, whose weight may need no gradient."""
    layer = nn.Linear(16, 16, bias=False).to("mps").requires_grad_(grad)
    layer(on(rows, 16, grad=True)).mul(1.0).mean().backward()


def mixed_norm_backward(dtype: torch.dtype) -> None:
    """Backward alone of a layer norm in half precision with weights of that dtype."""
    x, (mean, deviation) = on(4, 8, dtype=torch.float16), (on(4, 1, dtype=torch.float16) for _ in range(2))
    torch.ops.aten.native_layer_norm_backward(x, x, [8], mean, deviation, on(8, dtype=dtype), None, [True, True, False])


def mixed_batch_norm(dtype: torch.dtype, *, training: bool) -> None:
    """Forward of a batch norm in half precision with numbers of that dtype."""
    own = [on(3, dtype=dtype) for _ in range(4)]
    F.batch_norm(on(2, 3, 4, dtype=torch.float16), *own, training=training)


def to_one(rows: int, outputs: int, reduce: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Forward and backward of a layer of 2 to few."""
    reduce(F.linear(on(rows, 2, grad=True), on(outputs, 2))).backward()


def masked_attention(mask: torch.Tensor | None, *, queries: int = 4, grad: bool = False) -> None:
    """Attention of two samples and four heads."""
    keys = on(2, 4, 8, 64)
    F.scaled_dot_product_attention(on(2, 4, queries, 64, grad=grad), keys, keys, attn_mask=mask)


def lstm(layers: int = 1, dropout: float = 0.0, *, train: bool = True, x: torch.Tensor | None = None) -> None:
    """Forward of an LSTM of 4 to 4."""
    nn.LSTM(4, 4, layers, dropout=dropout).to("mps").train(train)(on(3, 2, 4) if x is None else x)


def measure() -> None:
    """Two events with timing, measured."""
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    torch.mps.synchronize()
    start.elapsed_time(end)


def sdpa(length: int = 4, dtype: torch.dtype = torch.float16, **options: Any) -> torch.Tensor:
    """Attention of width 8."""
    q = on(1, 2, length, 8, dtype=dtype)
    return F.scaled_dot_product_attention(q, q, q, **options)


def fused(kind: type[torch.optim.Optimizer], **found: torch.Tensor | None) -> None:
    """A step of a fused optimizer, with what a GradScaler sets on it before."""
    weight = on(3)
    weight.grad = on(3)
    optimizer = kind([weight], lr=0.1, fused=True)  # type: ignore[call-arg]
    for name, value in found.items():
        setattr(optimizer, name, value)
    optimizer.step()
