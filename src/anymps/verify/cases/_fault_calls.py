"""The calls of known faults (MPS6xx), on any device, at the sizes that the rules name (`anymps.rules.faults`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class FaultCall:
    """A call that meets a fault, on the device that it is given; what it returns is compared with the CPU's.

    `varies`: the fault shows in other results from run to run; `raises`: in an exception. `expected` stands for the
    CPU where that would take too long; `bytes_needed` is what the call takes on the device. `by_rule`: the virtual
    device does not run it, and only says what its rules claim: for its size, or since no single call shows it.
    """

    call: Callable[[str], Any]
    varies: bool = False
    raises: bool = False
    expected: Callable[[], Any] | None = None
    bytes_needed: int = 0
    by_rule: bool = False


def _made(device: str, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """Small whole numbers in no order: sums of them are exact."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count, device="cpu") * 7919 % 9973 % 7 - 3).view(shape)
    return numbers.to(dtype).to(device).requires_grad_(grad)


def _litter(device: str) -> None:
    """Leave large numbers in free memory, for what reads past an end."""
    held = [torch.full((1 << 20,), 1e4, device=device) for _ in range(8)]
    held.clear()


def _product(device: str, *shapes: tuple[int, ...], call: Callable[..., torch.Tensor] = torch.matmul) -> torch.Tensor:
    operands = [_made(device, *shape) for shape in shapes]
    _litter(device)
    return call(*operands)


def _casts(device: str) -> torch.Tensor:
    x = _made(device, 64)
    x.to("cpu", torch.float16)
    return x + 0


def _gaps(device: str) -> torch.Tensor:
    target = torch.zeros(40, device="cpu")
    target[::2][:10].copy_(_made(device, 20)[::2])
    return target


def _into_double(device: str) -> torch.Tensor:
    return torch.zeros(8, dtype=torch.float64, device="cpu").copy_(_made(device, 8))


def _element(device: str) -> torch.Tensor:
    return _made(device, 4) + torch.tensor([1.0, 20.0], device="cpu")[1]


def _linear_gradient(device: str) -> Any:
    weight, x = _made(device, 16, 16, grad=True), _made(device, 32768, 16, grad=True)
    _litter(device)
    torch.autograd.backward((F.linear(x, weight) * 2).sum())
    return weight.grad, x.grad


def _conv_gradient(device: str) -> Any:
    weight = _made(device, 1, 1, 1, grad=True)
    torch.autograd.backward((F.conv1d(_made(device, 65536, 1, 1), weight) * 2).sum())
    return weight.grad


def _batch_norm(device: str) -> Any:
    x = _made(device, 4, 3, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    weight = _made(device, 3, grad=True)
    # Squares: the gradient of a sum of products with `x` itself is zero but for rounding.
    products = F.batch_norm(x, None, None, weight, training=True) * _made(device, 4, 3, 5, 5).square()
    torch.autograd.backward(products.sum())
    return weight.grad, x.grad


def _batch_norm_3d(device: str) -> Any:
    return F.batch_norm(_made(device, 1, 3, 3, 3, 2).permute(0, 4, 1, 2, 3), None, None, training=True)


def _layer_norm(device: str) -> Any:
    weight, bias = _made(device, 64, grad=True), _made(device, 64, grad=True)
    torch.autograd.backward((F.layer_norm(_made(device, 32, 64), (64,), weight, bias) * _made(device, 32, 64)).sum())
    return weight.grad, bias.grad


def _mixed_batch_norm(device: str) -> torch.Tensor:
    x, mean, variance = _made(device, 2, 3, 4, dtype=torch.float16), _made(device, 3), torch.ones(3, device=device)
    return F.batch_norm(x, mean, variance)


def _summand(device: str) -> torch.Tensor:
    nothing = torch.full((1, 1, 1), float("nan"), device=device)
    return torch.baddbmm(nothing, _made(device, 1, 4, 4), _made(device, 1, 4, 4), beta=0)


def _many_batches(device: str) -> torch.Tensor:
    return F.linear(_made(device, 65_537, 17, 8), _made(device, 16, 8), _made(device, 16))[[0, 1, -1]]


def _linear_to_one(device: str, weight: torch.Tensor) -> torch.Tensor:
    x = _made(device, 3840, 33, grad=True)
    torch.autograd.backward(F.linear(x, weight).sum())
    assert x.grad is not None
    return x.grad


def _mixed_layer_norm(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = _made(device, 4, 8, dtype=torch.float16, grad=True)
    return F.layer_norm(x, (8,), _made(device, 8), _made(device, 8)).sum(), x


def _attention_of_samples(device: str) -> torch.Tensor:
    query = _made(device, 2, 4, 8, 64)
    mask = torch.zeros(2, 1, 8, 8, device=device)
    mask[0, 0, 4:, :4] = float("-inf")
    return F.scaled_dot_product_attention(query, query, query, attn_mask=mask)


def _unscaled(device: str) -> torch.Tensor:
    gradients = [_made(device, 16, dtype=torch.bfloat16)]
    found, inverse = torch.zeros((), device=device), torch.full((), 0.5, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
    return gradients[0]


def _uneven_pool(device: str) -> Any:
    x = _made(device, 1, 2, 5, 5, grad=True)
    values, places = F.adaptive_max_pool2d(x, 3, return_indices=True)
    torch.autograd.backward(values.sum())
    return values, places, x.grad


def _lstm(device: str, dropout: float) -> nn.LSTM:
    torch.manual_seed(0)
    return nn.LSTM(8, 8, 2 if dropout else 1, dropout=dropout).to(device)


def _same_dropout(device: str) -> Any:
    """Whether two calls drop the same: 0 as it should be."""
    model, x = _lstm(device, 0.5), _made(device, 5, 4, 8)
    with torch.no_grad():
        return torch.equal(model(x)[0], model(x)[0]) * torch.ones(1)


def _dropout_backward(device: str) -> Any:
    """What reaches the input where everything between the layers is dropped: nothing."""
    model, x = _lstm(device, 1.0), _made(device, 5, 4, 8, grad=True)
    torch.autograd.backward(model(x)[0].sum())
    return x.grad


def _lstm_strided(device: str) -> Any:
    model, x = _lstm(device, 0.0), _made(device, 4, 5, 8, grad=True)
    torch.autograd.backward(model(x.transpose(0, 1))[0].square().sum())
    return x.grad


def _attention(device: str, *, length: int = 4, value: int = 8, dtype: torch.dtype, causal: bool = False) -> Any:
    q, k = (_made(device, 1, 2, length, 8, dtype=dtype) for _ in range(2))
    v = _made(device, 1, 2, length, value, dtype=dtype)
    with torch.no_grad():
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _attention_dropout(device: str) -> Any:
    q = _made(device, 1, 2, 4, 8)
    return torch.ops.aten._scaled_dot_product_attention_math_for_mps(q, q, q, dropout_p=0.5)


def _row_of_a_large_table(device: str) -> torch.Tensor:
    table = torch.zeros(70_000, 40_000, dtype=torch.bool, device=device)
    table[69_999] = True
    return table.index_select(0, torch.tensor([69_999], device=device))


def _large_cat(device: str) -> torch.Tensor:
    half = torch.ones(1 << 15, (1 << 15) + 1, dtype=torch.int8, device=device)
    made = torch.cat([half, half])
    return torch.stack([made[0, :8], made[-1, -8:]])


def _large_fold(device: str) -> torch.Tensor:
    return F.fold(torch.ones(1, 65_536, 65_537, dtype=torch.float16, device=device), (1, 65_537), (1, 1))[0, -1, 0, -8:]


def _large_pool(device: str) -> torch.Tensor:
    return F.avg_pool2d(torch.ones(1, 32_769, 256, 256, dtype=torch.float16, device=device), 256)[0, -8:, 0, 0]


def _large_fill(device: str) -> torch.Tensor:
    x = torch.zeros(1 << 16, (1 << 16) + 1, dtype=torch.bool, device=device)
    return x.masked_fill_(torch.ones((), dtype=torch.bool, device=device), True)[-1, -8:]


def _large_dimension(device: str) -> torch.Tensor:
    x = torch.zeros(1, (1 << 32) + 1, 1, dtype=torch.float16, device=device)
    return torch.bmm(x, torch.zeros(1, 1, 1, dtype=torch.float16, device=device))[0, -8:]


def _large_batch(device: str) -> torch.Tensor:
    x = torch.ones(65_537, 256, 4, dtype=torch.float16, device=device)
    x[-1] = 2
    return torch.bmm(x, x.transpose(1, 2))[-1, -1, -8:]


def _large_graph(device: str) -> torch.Tensor:
    x = torch.ones(1 << 15, (1 << 15) + 1, device=device)
    return torch._softmax_backward_data(x, x, -1, torch.float32)[-1, -8:]


def _added_rows(device: str) -> torch.Tensor:
    x = (torch.arange(1 << 16, device="cpu") % 1000 / 999).to(device)
    index = (torch.arange(1 << 16, device="cpu") % 7).to(device)
    return torch.zeros(7, device=device).index_add_(0, index, x)


def _measured_twice(device: str) -> Any:
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    torch.mps.synchronize()
    return [start.elapsed_time(end) for _ in range(2)]


def _measured_after_its_wait(device: str) -> Any:
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def _two_threads(device: str) -> None:
    def work() -> None:
        x = torch.ones(256, 256, device=device)
        for _ in range(2000):
            x = (x @ x).tanh()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _compiled(device: str) -> Any:
    torch.manual_seed(0)
    norm = nn.LayerNorm(64).to(device)
    x = _made(device, 32, 64)
    return torch.compile(norm)(x) if device != "cpu" else norm(x)


def _fused_under_a_scaler(device: str) -> Any:
    weight = _made(device, 3)
    weight.grad = _made(device, 3) * 4
    optimizer: Any = torch.optim.AdamW([weight], lr=0.1, fused=True)
    optimizer.grad_scale = torch.full((), 4.0, device=device)
    optimizer.found_inf = torch.zeros((), device=device)
    optimizer.step()
    return weight


def _divided(device: str) -> Any:
    x = torch.tensor([7, -7, 0], dtype=torch.int32, device=device)
    return torch.div(x, torch.zeros_like(x), rounding_mode="trunc")


_GIB: Final = 1 << 30

FAULT_CALLS: Final[dict[str, FaultCall]] = {
    "MPS601": FaultCall(_casts),
    "MPS602": FaultCall(lambda d: _made(d, 64)[1:].to("cpu", torch.float16)),
    "MPS603": FaultCall(_gaps),
    "MPS604": FaultCall(_into_double),
    "MPS605": FaultCall(_element),
    "MPS606": FaultCall(_summand),
    "MPS607": FaultCall(_many_batches),
    "MPS608": FaultCall(lambda d: F.linear(_made(d, 80, 1, 2), _made(d, 192, 2), _made(d, 192))),
    "MPS609": FaultCall(lambda d: F.linear(_made(d, 3, 4, 0), _made(d, 5, 0), _made(d, 5)), raises=True),
    "MPS610": FaultCall(lambda d: _linear_to_one(d, _made(d, 1, 33))),
    "MPS611": FaultCall(lambda d: _product(d, (16, 32767), (32767, 16))),
    "MPS612": FaultCall(_linear_gradient),
    "MPS613": FaultCall(lambda d: _product(d, (16, 32768), (16, 32768), call=F.linear)),
    "MPS614": FaultCall(lambda d: _product(d, (1, 16, 32767), (1, 32767, 16), call=torch.bmm)),
    "MPS615": FaultCall(lambda d: torch.ones((), device=d).expand(8, 4) @ _made(d, 4, 2)),
    "MPS616": FaultCall(_large_batch, expected=lambda: torch.full((8,), 16.0), bytes_needed=9 * _GIB, by_rule=True),
    "MPS617": FaultCall(lambda d: torch.addcmul(*(_made(d, 64, dtype=torch.int32) for _ in range(3)), value=3)),
    "MPS618": FaultCall(_divided, expected=lambda: torch.zeros(3, dtype=torch.int32), by_rule=True),
    "MPS619": FaultCall(
        lambda d: torch.nextafter(_made(d, 64, dtype=torch.bfloat16), torch.full((64,), 9.0, device=d).bfloat16())
    ),
    "MPS620": FaultCall(lambda d: (_made(d, 40, dtype=torch.int64) + 9).amin()),
    "MPS621": FaultCall(lambda d: F.conv2d(_made(d, 1, 3, 8, 8), _made(d, 4, 3, 2, 3, 3)[:, :, 1])),
    "MPS622": FaultCall(
        lambda d: F.conv2d(_made(d, 2, 4, 5, 3).to(memory_format=torch.channels_last)[:, :2], _made(d, 3, 2, 1, 1))
    ),
    "MPS623": FaultCall(lambda d: F.conv2d(_made(d, 1, 1, 1, 300), _made(d, 1, 1, 1, 256))),
    "MPS624": FaultCall(_conv_gradient),
    "MPS625": FaultCall(lambda d: F.conv1d(_made(d, 1, 1, 131075), _made(d, 1, 1, 3), stride=2), raises=True),
    "MPS626": FaultCall(lambda d: F.conv3d(_made(d, 1, 2, 5, 5, 5), _made(d, 3, 2, 2, 2, 2))),
    "MPS627": FaultCall(_batch_norm),
    "MPS628": FaultCall(_batch_norm_3d),
    "MPS629": FaultCall(_layer_norm),
    "MPS630": FaultCall(_uneven_pool),
    "MPS631": FaultCall(_same_dropout, expected=lambda: torch.zeros(1)),
    "MPS632": FaultCall(_dropout_backward, expected=lambda: torch.zeros(5, 4, 8)),
    "MPS633": FaultCall(_lstm_strided),
    "MPS634": FaultCall(lambda d: _mixed_layer_norm(d)[0]),
    "MPS635": FaultCall(lambda d: torch.autograd.grad(*_mixed_layer_norm(d)), raises=True),
    "MPS636": FaultCall(_mixed_batch_norm, raises=True),
    "MPS637": FaultCall(lambda d: _linear_to_one(d, _made(d, 33, grad=True)), raises=True),
    "MPS641": FaultCall(lambda d: _attention(d, value=4, dtype=torch.float32)),
    "MPS642": FaultCall(lambda d: _attention(d, length=64, dtype=torch.float16, causal=True)),
    "MPS643": FaultCall(_attention_dropout, raises=True),
    "MPS644": FaultCall(_attention_of_samples),
    "MPS651": FaultCall(
        _row_of_a_large_table,
        expected=lambda: torch.ones(1, 40_000, dtype=torch.bool),
        bytes_needed=3 * _GIB,
        by_rule=True,
    ),
    "MPS652": FaultCall(
        _large_cat, expected=lambda: torch.ones(2, 8, dtype=torch.int8), bytes_needed=4 * _GIB, by_rule=True
    ),
    "MPS653": FaultCall(
        _large_fold, expected=lambda: torch.ones(8, dtype=torch.float16), bytes_needed=17 * _GIB, by_rule=True
    ),
    "MPS654": FaultCall(
        _large_pool, expected=lambda: torch.ones(8, dtype=torch.float16), bytes_needed=5 * _GIB, by_rule=True
    ),
    "MPS655": FaultCall(_large_pool, raises=True, bytes_needed=5 * _GIB, by_rule=True),
    "MPS656": FaultCall(_large_fill, raises=True, bytes_needed=5 * _GIB, by_rule=True),
    "MPS657": FaultCall(_large_dimension, raises=True, bytes_needed=17 * _GIB, by_rule=True),
    "MPS658": FaultCall(
        _large_graph, expected=lambda: torch.full((8,), -32768.0), bytes_needed=13 * _GIB, by_rule=True
    ),
    "MPS659": FaultCall(lambda d: torch.fft.fft(_made(d, 4, 1, 2, 1, 2), dim=0), raises=True),
    "MPS660": FaultCall(lambda d: torch.linalg.svdvals(_made(d, 512, 4, 4)), raises=True),
    "MPS661": FaultCall(_added_rows, varies=True, by_rule=True),
    "MPS671": FaultCall(_measured_twice, expected=lambda: (), by_rule=True),
    "MPS672": FaultCall(_measured_after_its_wait, expected=lambda: (), by_rule=True),
    "MPS673": FaultCall(_two_threads, expected=lambda: (), by_rule=True),
    "MPS674": FaultCall(lambda d: torch.accelerator.empty_host_cache(), expected=lambda: (), by_rule=True),
    "MPS681": FaultCall(_compiled, by_rule=True),
    "MPS691": FaultCall(_fused_under_a_scaler),
    "MPS692": FaultCall(_unscaled),
}
"""By the fault's identity; `tests/verify/test_faults.py` holds the list to the rules."""
