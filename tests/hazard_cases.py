"""A call for each known bug of MPS, and calls nearly the same that a Mac computes right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from anymps.device import enforce_hazards
from anymps.rules.faults import hazards

F = nn.functional
Call = Callable[[], Any]
M1, M3 = "apple7", "apple9"


@dataclass(frozen=True)
class Case:
    """A call that meets the hazard `id` on a Mac, and calls nearly the same that do not."""

    id: str
    call: Call
    near: tuple[Call, ...]
    torch: str = "2.13.0"
    macos: tuple[int, int] = (26, 4)
    family: str = M3

    def enforce(self) -> None:
        """Put in force what this Mac has."""
        enforce_hazards(hazards(self.torch, self.macos, self.family))


def on(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A tensor on mps."""
    return torch.ones(shape, dtype=dtype, device="mps").requires_grad_(grad)


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


def gaps(stride: int) -> torch.Tensor:
    """A copy from every second element into every `stride`-th of a CPU tensor."""
    return torch.zeros(40)[::stride][:10].copy_(torch.arange(20.0, device="mps")[::2])


def read_after_cast(x: torch.Tensor, dtype: torch.dtype) -> None:
    """A casting copy to the CPU of what is needed later."""
    x.to("cpu", dtype)
    x.sum()


def linear(rows: int, grad: bool) -> None:
    """Forward and backward of a layer of 16 to 16, whose weight may need no gradient."""
    layer = nn.Linear(16, 16, bias=False).to("mps").requires_grad_(grad)
    layer(on(rows, 16, grad=True)).mul(1.0).mean().backward()


def batch_norm(x: torch.Tensor) -> None:
    """Forward and backward of a batch norm."""
    (F.batch_norm(x, None, None, on(x.shape[1], grad=True), training=True) * 2).mean().backward()


def layer_norm(*, input_grad: bool) -> None:
    """Forward and backward of a layer norm."""
    F.layer_norm(on(4, 8, grad=input_grad), (8,), on(8, grad=True), on(8, grad=True)).mean().backward()


def mixed_norm(dtype: torch.dtype) -> None:
    """Forward of a layer norm in half precision with weights of that dtype."""
    F.layer_norm(on(4, 8, dtype=torch.float16), (8,), on(8, dtype=dtype), on(8, dtype=dtype))


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


def unscale(dtype: torch.dtype) -> None:
    """What a GradScaler does to gradients of that dtype."""
    torch._amp_foreach_non_finite_check_and_unscale_([on(3, dtype=dtype)], on(), on())


def lstm(layers: int = 1, dropout: float = 0.0, *, train: bool = True, x: torch.Tensor | None = None) -> None:
    """Forward of an LSTM of 4 to 4."""
    nn.LSTM(4, 4, layers, dropout=dropout).to("mps").train(train)(on(3, 2, 4) if x is None else x)


def without_grad(function: Call) -> Call:
    """The call under no_grad."""
    return torch.no_grad()(function)


def strictly(function: Call) -> Call:
    """The call under use_deterministic_algorithms, with a warning where it is not."""

    def run() -> None:
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            function()
        finally:
            torch.use_deterministic_algorithms(False)

    return run


def add_rows() -> torch.Tensor:
    """index_add_ of one row."""
    return on(3, 2).index_add_(0, torch.tensor([1], device="mps"), on(1, 2))


def measure(*, between: str = "", times: int = 1) -> None:
    """Two events with timing, measured."""
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    if between == "event":
        end.synchronize()
    torch.mps.synchronize()
    for _ in range(times):
        start.elapsed_time(end)


def sdpa(length: int = 4, *, value: int = 8, dtype: torch.dtype = torch.float16, **options: Any) -> torch.Tensor:
    """Attention of width 8."""
    q, k, v = on(1, 2, length, 8, dtype=dtype), on(1, 2, length, 8, dtype=dtype), on(1, 2, length, value, dtype=dtype)
    return F.scaled_dot_product_attention(q, k, v, **options)


def kernel(dropout: float) -> Any:
    """The attention operator itself."""
    q = on(1, 2, 4, 8)
    return torch.ops.aten._scaled_dot_product_attention_math_for_mps(q, q, q, dropout_p=dropout)


def fused(kind: type[torch.optim.Optimizer], **found: torch.Tensor | None) -> None:
    """A step of a fused optimizer, with what a GradScaler sets on it before."""
    weight = on(3)
    weight.grad = on(3)
    optimizer = kind([weight], lr=0.1, fused=True)  # type: ignore[call-arg]
    for name, value in found.items():
        setattr(optimizer, name, value)
    optimizer.step()


def fails(call: Call) -> Call:
    """A call that the device answers with an exception."""

    def run() -> None:
        with pytest.raises(RuntimeError):
            call()

    return run


TABLE = torch.tensor([1.0, 2.0])
CASES = (
    Case(
        "MPS601",
        lambda: read_after_cast(on(4), torch.float16),
        (lambda: on(4).to("cpu", torch.float16), lambda: read_after_cast(on(4, dtype=torch.int32), torch.int64),
         lambda: on(4, dtype=torch.int32).to("cpu", torch.int64), lambda: on(4).to("cpu"), lambda: on(4).half(),
         lambda: torch.zeros(2, 2, dtype=torch.float16).copy_(on(2, 2).t())),
    ),
    Case(
        "MPS602",
        lambda: on(4)[1:].to("cpu", torch.float16),
        (lambda: on(4)[1:].to("cpu"), lambda: on(4)[1:].half().to("cpu")),
    ),
    Case("MPS603", lambda: gaps(2), (lambda: gaps(1), lambda: gaps(3))),
    Case(
        "MPS605",
        lambda: on(4).add_(TABLE[1]),
        (lambda: on(4) + 2.0, lambda: on(4) * TABLE.double()[1], lambda: on(4) + on(2)[1]),
    ),
    Case(
        "MPS606",
        lambda: torch.baddbmm(on(1, 1, 1), on(1, 2, 3), on(1, 3, 2), beta=0),
        (lambda: torch.baddbmm(on(1, 1, 1), on(1, 2, 3), on(1, 3, 2), beta=0.5),
         lambda: torch.bmm(on(1, 2, 3), on(1, 3, 2))),
    ),
    Case(
        "MPS607",
        lambda: F.linear(on(65537, 1, 1), on(2, 1), on(2)),
        (lambda: F.linear(on(65536, 1, 1), on(2, 1), on(2)), lambda: F.linear(on(65537, 1, 1), on(2, 1)),
         lambda: F.linear(on(65537, 1), on(2, 1), on(2)), lambda: F.linear(on(2, 65537, 1), on(2, 1), on(2))),
    ),
    Case(
        "MPS608",
        lambda: F.linear(on(8, 1, 2), on(2, 2), on(2)),
        (lambda: F.linear(on(8, 2, 2), on(2, 2), on(2)), lambda: F.linear(on(8, 1, 2), on(2, 2)),
         lambda: F.linear(on(1, 2), on(2, 2), on(2))),
        family=M1,
    ),
    Case(
        "MPS609",
        fails(lambda: F.linear(on(3, 4, 0), on(5, 0), on(5))),
        (lambda: F.linear(on(0, 4, 0), on(5, 0), on(5)), lambda: on(3, 0) @ on(0, 5)),
    ),
    Case(
        "MPS610",
        lambda: to_one(4000, 1, torch.sum),
        (lambda: to_one(4000, 1, torch.mean), lambda: to_one(4000, 2, torch.sum), lambda: to_one(2048, 1, torch.sum)),
    ),
    Case(
        "MPS611",
        lambda: on(16, 32767) @ on(32767, 16),
        (lambda: on(16, 32766) @ on(32766, 16), lambda: on(15, 32767) @ on(32767, 16)),
        family=M1,
    ),
    Case("MPS612", lambda: linear(32768, True), (lambda: linear(32766, True), lambda: linear(32768, False)), family=M1),
    Case(
        "MPS613",
        lambda: F.linear(on(16, 32768), on(16, 32768)),
        (lambda: F.linear(on(16, 32769), on(16, 32769)), lambda: F.linear(on(16, 32766), on(16, 32766))),
        "2.14.0",
        family=M1,
    ),
    Case(
        "MPS614",
        lambda: torch.bmm(on(1, 16, 32767), on(1, 32767, 16)),
        (lambda: torch.bmm(on(1, 16, 32766), on(1, 32766, 16)), lambda: torch.bmm(on(1, 15, 32767), on(1, 32767, 16))),
        "2.15.0",
        family=M1,
    ),
    Case(
        "MPS615",
        lambda: wide(8, 4) @ on(4, 2),
        (lambda: wide(8, 4).contiguous() @ on(4, 2), lambda: wide(1, 1) @ on(1, 2)),
        "2.11.0",
        (26, 3),
    ),
    Case(
        "MPS617",
        lambda: torch.addcmul(*[on(4, dtype=torch.int32)] * 3),
        (lambda: torch.addcmul(*[on(4)] * 3),),
    ),
    Case(
        "MPS619",
        lambda: torch.nextafter(*[on(4, dtype=torch.bfloat16)] * 2),
        (lambda: torch.nextafter(*[on(4)] * 2), lambda: torch.nextafter(*[on(4, dtype=torch.float16)] * 2)),
    ),
    Case(
        "MPS620",
        lambda: on(33, dtype=torch.int64).amin(),
        (lambda: on(32, dtype=torch.int64).amin(), lambda: on(993, dtype=torch.int64).amax(),
         lambda: on(40, dtype=torch.int32).amin(), lambda: on(40, 2, dtype=torch.int64).amin(0)),
    ),
    Case(
        "MPS621",
        lambda: F.conv2d(on(1, 3, 8, 8), on(4, 3, 2, 3, 3)[:, :, 1]),
        (lambda: F.conv2d(on(1, 3, 8, 8), on(4, 3, 2, 3, 3)[:, :, 1].contiguous()),
         lambda: F.conv2d(on(1, 3, 8, 8), last(on(4, 3, 3, 3)))),
    ),
    Case(
        "MPS622",
        lambda: F.conv2d(last(on(1, 4, 2, 3))[:, :2], on(1, 2, 1, 1)),
        (lambda: F.conv2d(last(on(1, 4, 2, 3)), on(1, 4, 1, 1)),
         lambda: F.conv2d(on(1, 4, 2, 3)[:, :2], on(1, 2, 1, 1))),
        "2.11.0",
    ),
    Case(
        "MPS623",
        lambda: F.conv2d(on(1, 1, 1, 300), on(1, 1, 1, 256)),
        (lambda: F.conv2d(on(1, 1, 1, 300), on(1, 1, 1, 255)), lambda: F.conv2d(on(1, 300, 1, 1), on(1, 300, 1, 1))),
    ),
    Case(
        "MPS624",
        lambda: F.conv1d(on(65536, 1, 1), on(1, 1, 1, grad=True)).mean().backward(),
        (lambda: F.conv1d(on(65535, 1, 1), on(1, 1, 1, grad=True)).mean().backward(),
         lambda: F.conv1d(on(65536, 1, 1, grad=True), on(1, 1, 1)).mean().backward()),
    ),
    Case(
        "MPS625",
        fails(lambda: F.conv1d(on(1, 1, 131075), on(1, 1, 3), stride=2)),
        (lambda: F.conv1d(on(1, 1, 131073), on(1, 1, 3), stride=2), lambda: F.conv1d(on(1, 1, 65538), on(1, 1, 3)),
         lambda: F.conv_transpose1d(on(1, 1, 65600), on(1, 1, 3))),
        macos=(15, 0),
    ),
    Case(
        "MPS626",
        lambda: F.conv3d(on(1, 2, 3, 3, 3), on(1, 2, 1, 1, 1)),
        (lambda: F.conv2d(on(1, 2, 3, 3), on(1, 2, 1, 1)),
         lambda: F.conv3d(on(1, 2, 3, 3, 3).to(memory_format=torch.channels_last_3d), on(1, 2, 1, 1, 1))),
        "2.14.0",
        (26, 2),
    ),
    Case("MPS627", lambda: batch_norm(last(on(2, 3, 4, 4))), (lambda: batch_norm(on(2, 3, 4, 4)),)),
    Case(
        "MPS628",
        fails(lambda: nn.BatchNorm3d(2).to("mps")(on(1, 3, 3, 3, 2).permute(0, 4, 1, 2, 3))),
        (lambda: nn.BatchNorm3d(2).to("mps")(on(1, 2, 3, 3, 3)),
         lambda: nn.BatchNorm2d(2).to("mps")(on(1, 3, 3, 2).permute(0, 3, 1, 2))),
    ),
    Case(
        "MPS629",
        lambda: layer_norm(input_grad=False),
        (lambda: layer_norm(input_grad=True),),
        "2.12.0",
    ),
    Case(
        "MPS638",
        lambda: F.layer_norm(ramp(4, 64) + 1000, (64,)),
        (lambda: F.layer_norm(ramp(4, 64) + 100, (64,)), lambda: F.layer_norm(on(4, 64) * 0, (64,)),
         lambda: F.layer_norm(ramp(4, 64), (64,))),
    ),
    Case("MPS638", lambda: F.layer_norm(ramp(1, 64) * 5e-4, (64,), eps=1e-12), ()),
    Case(
        "MPS639",
        lambda: F.group_norm(ramp(2, 4, 64) + 4000, 2),
        (lambda: F.group_norm(ramp(2, 4, 64) + 100, 2), lambda: F.group_norm(ramp(2, 4, 64), 2),
         # Each channel is nearly constant, and the group of all of them is not.
         lambda: F.group_norm(torch.arange(3.0, 7.0, device="mps").view(1, 4, 1) + ramp(1, 4, 300) / 1e5, 1)),
    ),
    Case(
        "MPS640",
        lambda: on(4, dtype=torch.complex64).var(),
        (lambda: on(4).var(), lambda: on(4, dtype=torch.complex64).real.std()),
    ),
    Case("MPS640", lambda: torch.std_mean(on(4, dtype=torch.complex64)), ()),
    Case(
        "MPS645",
        lambda: torch.unique(torch.tensor([1, 2**24 + 1], device="mps"), return_inverse=True),
        (lambda: torch.unique(torch.tensor([1, 2**24], device="mps"), return_inverse=True),
         lambda: torch.unique(torch.tensor([1, 2**24 + 1], device="mps"))),
    ),
    Case(
        "MPS647",
        lambda: torch.linalg.solve(matrices(2), on(3, 1)),
        (lambda: torch.linalg.solve(matrices(2), on(2, 3, 1)), lambda: torch.linalg.solve(matrices(2), on(2, 3)),
         lambda: torch.linalg.solve(matrices(2)[0], on(3, 1))),
    ),
    Case("MPS647", lambda: torch.linalg.solve(matrices(4), on(3)), ()),
    Case(
        "MPS649",
        lambda: torch.linalg.cholesky_ex(torch.diag(40.0 - torch.arange(41, device="mps"))),
        (lambda: torch.linalg.cholesky_ex(torch.diag(20.0 - torch.arange(41, device="mps"))),
         lambda: torch.linalg.cholesky_ex(torch.diag(41.0 - torch.arange(41, device="mps"))),
         lambda: torch.linalg.cholesky_ex(torch.diag(31.0 - torch.arange(32, device="mps")))),
    ),
    Case(
        "MPS648",
        lambda: torch.histogram(numbers(0.5, -1e-6), 4, range=(0.0, 1.0)),
        (lambda: torch.histogram(numbers(0.5, -1e-6), 4),
         lambda: torch.histogram(numbers(0.5, -1.0), 4, range=(0.0, 1.0)),
         lambda: torch.histogram(numbers(0.0, 1.0), 4, range=(0.0, 1.0)),
         lambda: torch.histogram(numbers(99.9999), 4, range=(100.0, 101.0)), lambda: torch.histc(numbers(-1e-6, 0.5)),
         lambda: torch.histogram(numbers(0.5, -1e-6), numbers(-1.0, 0.0, 1.0))),
    ),
    Case("MPS648", lambda: torch.histogram(numbers(0.5, 1 + 1e-6), numbers(0.0, 0.5, 1.0)), ()),
    Case("MPS648", lambda: torch.histc(numbers(-1e-6), 4, 0, 1),
         (lambda: torch.histc(numbers(0.5), 4, 0, 1),), "2.14.0"),
    Case("MPS648", lambda: torch._histogramdd_from_bin_cts(pairs(), [2, 2], range=[0.0, 1.0, 0.0, 2.0]),
         (lambda: torch._histogramdd_from_bin_cts(pairs(), [2, 2], range=[0.0, 2.0, 0.0, 1.0]),)),
    Case("MPS648", lambda: torch._histogramdd_from_bin_tensors(pairs(), [numbers(0.0, 1.0), numbers(0.0, 2.0)]),
         (lambda: torch._histogramdd_from_bin_tensors(pairs(), [numbers(0.0, 2.0), numbers(0.0, 1.0)]),)),
    Case(
        "MPS630",
        lambda: F.adaptive_max_pool2d(on(1, 2, 5, 5), 3),
        (lambda: F.adaptive_max_pool2d(on(1, 2, 6, 9), 3), lambda: F.adaptive_max_pool2d(on(1, 2, 7, 4), (2, 3)),
         lambda: F.adaptive_max_pool2d(on(1, 2, 2, 2), 5), lambda: F.adaptive_max_pool2d(on(1, 2, 5, 2), (3, 4)),
         lambda: F.adaptive_max_pool2d(on(1, 2, 2, 2), (2, 4)), lambda: F.adaptive_max_pool2d(on(1, 5, 5), 1),
         lambda: F.adaptive_avg_pool2d(on(1, 2, 6, 6), 3), lambda: F.adaptive_max_pool1d(on(1, 2, 7), 2)),
    ),
    Case("MPS630", lambda: F.adaptive_max_pool2d(on(2, 2, 2), 4), (lambda: F.max_pool2d(on(2, 5, 5), 2),)),
    Case("MPS630", lambda: F.adaptive_max_pool1d(on(4, 8), 3), (lambda: F.adaptive_max_pool1d(on(4, 9), 3),)),
    Case(
        "MPS634",
        lambda: mixed_norm(torch.float32),
        (lambda: mixed_norm(torch.float16), lambda: F.layer_norm(on(4, 8, dtype=torch.float16), (8,))),
    ),
    Case(
        "MPS635",
        fails(lambda: mixed_norm_backward(torch.float32)),
        (lambda: mixed_norm_backward(torch.float16),),
    ),
    Case(
        "MPS636",
        fails(lambda: mixed_batch_norm(torch.float32, training=True)),
        (lambda: mixed_batch_norm(torch.float16, training=True),),
        "2.11.0",
    ),
    Case(
        "MPS636",
        fails(lambda: mixed_batch_norm(torch.float32, training=False)),
        (lambda: mixed_batch_norm(torch.float16, training=False),),
        "2.11.0",
    ),
    Case(
        "MPS637",
        fails(lambda: F.linear(on(4, 2, grad=True), on(2)).sum().backward()),
        (lambda: F.linear(on(4, 2), on(2)).sum(), lambda: F.linear(on(4, 2, grad=True), on(1, 2)).sum().backward()),
    ),
    Case(
        "MPS631",
        without_grad(lambda: lstm(2, 0.5)),
        (without_grad(lambda: lstm(2)), without_grad(lambda: lstm(1)), without_grad(lambda: lstm(2, 0.5, train=False))),
        "2.12.0",
    ),
    Case(
        "MPS632",
        lambda: lstm(2, 0.5),
        (lambda: lstm(2), without_grad(lambda: lstm(2, 0.5)), lambda: lstm(2, 0.5, train=False)),
    ),
    Case(
        "MPS633",
        lambda: lstm(x=on(2, 3, 4, grad=True).transpose(0, 1)),
        (lambda: lstm(x=on(2, 3, 4).transpose(0, 1)), lambda: lstm(x=on(2, 3, 4, grad=True))),
        "2.12.0",
    ),
    Case("MPS641", lambda: sdpa(value=4), (lambda: sdpa(),), "2.11.0"),
    Case(
        "MPS642",
        lambda: sdpa(is_causal=True),
        (lambda: sdpa(), lambda: sdpa(is_causal=True, dtype=torch.float32), lambda: sdpa(1, is_causal=True)),
    ),
    Case("MPS643", fails(lambda: kernel(0.5)), (lambda: kernel(0.0), lambda: sdpa(dropout_p=0.5))),
    Case("MPS651", lambda: wide(70000, 40000, dtype=torch.bool).index_select(0, torch.tensor([69999], device="mps")),
         (lambda: wide(53000, 40000, dtype=torch.bool).index_select(0, torch.tensor([9], device="mps")),)),
    Case("MPS656", fails(lambda: wide(2**16, 2**16 + 1, dtype=torch.bool).masked_fill_(on(dtype=torch.bool), True)),
         (lambda: on(4).masked_fill_(on(4, dtype=torch.bool), 0.0),)),
    Case("MPS657", fails(lambda: torch.bmm(wide(1, 2**32 + 1, 1), on(1, 1, 1))),
         (lambda: torch.bmm(on(1, 2, 1), on(1, 1, 1)),)),
    Case(
        "MPS644",
        lambda: masked_attention(on(2, 1, 4, 8)),
        (lambda: masked_attention(on(2, 4, 4, 8)), lambda: masked_attention(on(1, 1, 4, 8)),
         lambda: masked_attention(on(4, 8)), lambda: masked_attention(None),
         lambda: masked_attention(on(2, 1, 9, 8), queries=9), lambda: masked_attention(on(2, 1, 4, 8), grad=True)),
        "2.12.0",
    ),
    Case("MPS644", lambda: masked_attention(on(2, 1, 4, 8).expand(2, 4, 4, 8)), (), "2.12.0"),
    Case("MPS644", lambda: masked_attention(on(1, 4, 4, 8)), (), "2.12.0"),
    Case(
        "MPS659",
        fails(lambda: torch.fft.fft(on(2, 2, 2, 2, 2), dim=0)),
        (lambda: torch.fft.fft(on(2, 2, 2, 2, 2), dim=1), lambda: torch.fft.fft(on(2, 2, 2, 2), dim=0)),
    ),
    Case("MPS659", fails(lambda: torch.fft.rfft(on(2, 2, 2, 2, 2), dim=0)), (lambda: torch.fft.rfft(on(2, 2), dim=0),)),
    Case("MPS661", strictly(add_rows), (add_rows, strictly(lambda: on(3).add_(1)))),
    Case(
        "MPS691",
        lambda: fused(torch.optim.AdamW, grad_scale=on()),
        (lambda: fused(torch.optim.AdamW), lambda: fused(torch.optim.AdamW, found_inf=None)),
        "2.12.0",
    ),
    Case(
        "MPS692",
        lambda: unscale(torch.bfloat16),
        (lambda: unscale(torch.float32),),
        "2.12.0",
    ),
    Case("MPS691", lambda: fused(torch.optim.SGD, found_inf=on()), (lambda: fused(torch.optim.SGD),), "2.11.0"),
    Case("MPS671", fails(lambda: measure(times=2)), (lambda: measure(),)),
    Case("MPS672", lambda: measure(between="event"), (lambda: measure(between="all"),)),
    *(
        [Case("MPS674", fails(torch.accelerator.empty_host_cache), (torch.accelerator.empty_cache,))]
        if hasattr(torch.accelerator, "empty_host_cache")  # since torch 2.12
        else []
    ),
)  # fmt: skip
