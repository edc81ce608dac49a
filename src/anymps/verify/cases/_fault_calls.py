"""The calls of known bugs (MPS6xx), on any device, at the sizes that the rules name (`anymps.rules.faults`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn


def _made(device: str, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """Small whole numbers in no order: sums of them are exact."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count, device="cpu") * 7919 % 9973 % 7 - 3).view(shape)
    return numbers.to(dtype).to(device).requires_grad_(grad)


def _complex(device: str, *shape: int) -> torch.Tensor:
    return torch.complex(_made(device, *shape), _made(device, *shape))


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


def _fused_under_a_scaler(device: str) -> Any:
    weight = _made(device, 3)
    weight.grad = _made(device, 3) * 4
    optimizer: Any = torch.optim.AdamW([weight], lr=0.1, fused=True)
    optimizer.grad_scale = torch.full((), 4.0, device=device)
    optimizer.found_inf = torch.zeros((), device=device)
    optimizer.step()
    return weight


FAULT_CALLS: Final[dict[str, Callable[[str], Any]]] = {
    "MPS601": _casts,
    "MPS602": lambda d: _made(d, 64)[1:].to("cpu", torch.float16),
    "MPS603": _gaps,
    "MPS604": _into_double,
    "MPS605": _element,
    "MPS606": _summand,
    "MPS607": _many_batches,
    "MPS608": lambda d: F.linear(_made(d, 80, 1, 2), _made(d, 192, 2), _made(d, 192)),
    "MPS609": lambda d: F.linear(_made(d, 3, 4, 0), _made(d, 5, 0), _made(d, 5)),
    "MPS610": lambda d: _linear_to_one(d, _made(d, 1, 33)),
    "MPS611": lambda d: _product(d, (16, 32767), (32767, 16)),
    "MPS612": _linear_gradient,
    "MPS613": lambda d: _product(d, (16, 32768), (16, 32768), call=F.linear),
    "MPS614": lambda d: _product(d, (1, 16, 32767), (1, 32767, 16), call=torch.bmm),
    "MPS615": lambda d: torch.ones((), device=d).expand(8, 4) @ _made(d, 4, 2),
    "MPS617": lambda d: torch.addcmul(*(_made(d, 64, dtype=torch.int32) for _ in range(3)), value=3),
    "MPS619": lambda d: torch.nextafter(
        _made(d, 64, dtype=torch.bfloat16), torch.full((64,), 9.0, device=d).bfloat16()
    ),
    "MPS620": lambda d: (_made(d, 40, dtype=torch.int64) + 9).amin(),
    "MPS621": lambda d: F.conv2d(_made(d, 1, 3, 8, 8), _made(d, 4, 3, 2, 3, 3)[:, :, 1]),
    "MPS622": lambda d: F.conv2d(
        _made(d, 2, 4, 5, 3).to(memory_format=torch.channels_last)[:, :2], _made(d, 3, 2, 1, 1)
    ),
    "MPS623": lambda d: F.conv2d(_made(d, 1, 1, 1, 300), _made(d, 1, 1, 1, 256)),
    "MPS624": _conv_gradient,
    "MPS625": lambda d: F.conv1d(_made(d, 1, 1, 131075), _made(d, 1, 1, 3), stride=2),
    "MPS626": lambda d: F.conv3d(_made(d, 1, 2, 5, 5, 5), _made(d, 3, 2, 2, 2, 2)),
    "MPS627": _batch_norm,
    "MPS628": _batch_norm_3d,
    "MPS629": _layer_norm,
    "MPS630": _uneven_pool,
    "MPS631": _same_dropout,
    "MPS632": _dropout_backward,
    "MPS633": _lstm_strided,
    "MPS634": lambda d: _mixed_layer_norm(d)[0],
    "MPS635": lambda d: torch.autograd.grad(*_mixed_layer_norm(d)),
    "MPS636": _mixed_batch_norm,
    "MPS637": lambda d: _linear_to_one(d, _made(d, 33, grad=True)),
    "MPS638": lambda d: F.layer_norm(_made(d, 4, 64) + 4000, (64,)),
    "MPS639": lambda d: F.group_norm(_made(d, 2, 4, 8) + 4000, 2),
    "MPS640": lambda d: torch.var(_complex(d, 64)),
    "MPS641": lambda d: _attention(d, value=4, dtype=torch.float32),
    "MPS642": lambda d: _attention(d, length=64, dtype=torch.float16, causal=True),
    "MPS643": _attention_dropout,
    "MPS644": _attention_of_samples,
    "MPS645": lambda d: torch.unique(_made(d, 64, dtype=torch.int64) + (1 << 25), return_inverse=True),
    "MPS647": lambda d: torch.linalg.solve(_made(d, 3, 4, 4) + 9 * torch.eye(4, device=d), _made(d, 4, 2)),
    "MPS648": lambda d: torch.histc(_made(d, 64) - 1e-6, 4, min=0, max=4),
    "MPS649": lambda d: torch.linalg.cholesky_ex(torch.diag(torch.arange(40.0, 0.0, -1.0, device=d) - 2)).info,
    "MPS659": lambda d: torch.fft.fft(_made(d, 4, 1, 2, 1, 2), dim=0),
    "MPS660": lambda d: torch.linalg.svdvals(_made(d, 512, 4, 4)),
    "MPS691": _fused_under_a_scaler,
    "MPS692": _unscaled,
}
"""By the fault's identity. Left out are calls that need GiB of memory, and faults that no single call shows."""
