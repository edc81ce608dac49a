"""torch.autocast("mps"): which operators run in which type, caching, nesting, custom functions, refused types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from device.compare import text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

F = nn.functional


def x32(*shape: int) -> torch.Tensor:
    return values(*shape).to("mps")


def x16(*shape: int) -> torch.Tensor:
    return values(*shape).to("mps", torch.float16)


LOWER: dict[str, Callable[[], torch.Tensor]] = {
    "conv1d": lambda: F.conv1d(x32(1, 2, 5), x32(3, 2, 2)),
    "conv2d": lambda: F.conv2d(x32(1, 2, 5, 5), x32(3, 2, 2, 2)),
    "conv3d": lambda: F.conv3d(x32(1, 1, 3, 3, 3), x32(2, 1, 2, 2, 2)),
    "conv_tbc": lambda: torch.conv_tbc(x32(5, 1, 2), x32(2, 2, 3), x32(3)),
    "conv_transpose1d": lambda: F.conv_transpose1d(x32(1, 2, 5), x32(2, 3, 2)),
    "conv_transpose2d": lambda: F.conv_transpose2d(x32(1, 2, 5, 5), x32(2, 3, 2, 2)),
    "prelu": lambda: F.prelu(x32(2, 3), x32(3)),
    "addmm": lambda: torch.addmm(x32(2, 2), x32(2, 3), x32(3, 2)),
    "addmv": lambda: torch.addmv(x32(2), x32(2, 3), x32(3)),
    "addr": lambda: torch.addr(x32(2, 3), x32(2), x32(3)),
    "matmul": lambda: x32(2, 3) @ x32(3, 2),
    "einsum": lambda: torch.einsum("ij,jk->ik", x32(2, 3), x32(3, 2)),
    "mm": lambda: torch.mm(x32(2, 3), x32(3, 2)),
    "mv": lambda: torch.mv(x32(2, 3), x32(3)),
    "linear": lambda: F.linear(x32(2, 3), x32(4, 3), x32(4)),
    "addbmm": lambda: torch.addbmm(x32(2, 2), x32(3, 2, 3), x32(3, 3, 2)),
    "baddbmm": lambda: torch.baddbmm(x32(3, 2, 2), x32(3, 2, 3), x32(3, 3, 2)),
    "bmm": lambda: torch.bmm(x32(3, 2, 3), x32(3, 3, 2)),
    "chain_matmul": lambda: torch.linalg.multi_dot([x32(2, 3), x32(3, 2), x32(2, 2)]),
    "sdpa": lambda: F.scaled_dot_product_attention(x32(1, 2, 3, 4), x32(1, 2, 3, 4), x32(1, 2, 3, 4)),
    "lstm_cell": lambda: nn.LSTMCell(3, 4, device="mps")(x32(2, 3))[0],
}  # fmt: skip
FLOAT32: dict[str, Callable[[], torch.Tensor]] = {
    "exp": lambda: x16(3).exp(),
    "log": lambda: x16(3).abs().log(),
    "log1p": lambda: x16(3).abs().log1p(),
    "pow": lambda: x16(3) ** 2,
    "reciprocal": lambda: x16(3).reciprocal(),
    "rsqrt": lambda: x16(3).abs().rsqrt(),
    "tan": lambda: x16(3).tan(),
    "softplus": lambda: F.softplus(x16(3)),
    "layer_norm": lambda: F.layer_norm(x16(2, 3), (3,)),
    "group_norm": lambda: F.group_norm(x16(2, 4, 3), 2),
    "batch_norm": lambda: F.batch_norm(x16(4, 3), None, None, training=True),
    "cosine_similarity": lambda: F.cosine_similarity(x16(2, 3), x16(2, 3)),
    "nll_loss": lambda: F.nll_loss(x16(2, 3), torch.tensor([0, 1], device="mps")),
    "mse_loss": lambda: F.mse_loss(x16(3), x16(3)),
    "l1_loss": lambda: F.l1_loss(x16(3), x16(3)),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(x16(3), x16(3)),
    "huber_loss": lambda: F.huber_loss(x16(3), x16(3)),
    "kl_div": lambda: F.kl_div(x16(3), x16(3).abs(), reduction="sum"),
    "bce_with_logits": lambda: F.binary_cross_entropy_with_logits(x16(3), x16(3)),
    "cdist": lambda: torch.cdist(x16(2, 3), x16(2, 3)),
    "dist": lambda: torch.dist(x16(3), x16(3)),
    "logsumexp": lambda: torch.logsumexp(x16(3), 0),
    "prod": lambda: x16(3).prod(),
    "sum": lambda: x16(3).sum(),
    "softmax": lambda: x16(3).softmax(0),
    "log_softmax": lambda: x16(3).log_softmax(0),
    "cumsum": lambda: x16(3).cumsum(0),
    "cumprod": lambda: x16(3).cumprod(0),
    "norm": lambda: torch.linalg.vector_norm(x16(3)),
    "conv_transpose3d": lambda: F.conv_transpose3d(x16(1, 1, 3, 3, 3), x16(1, 2, 2, 2, 2)),
}
WIDEST: dict[str, Callable[[], torch.Tensor]] = {
    "addcmul": lambda: torch.addcmul(x16(3), x32(3), x16(3)),
    "addcdiv": lambda: torch.addcdiv(x16(3), x32(3), x16(3).abs() + 1),
    "atan2": lambda: torch.atan2(x16(3), x32(3)),
    "bilinear": lambda: F.bilinear(x16(2, 3), x32(2, 3), x32(2, 3, 3)),
    "cross": lambda: torch.cross(x16(2, 3), x32(2, 3), dim=1),
    "dot": lambda: torch.dot(x16(3), x32(3)),
    "grid_sample": lambda: F.grid_sample(x16(1, 1, 3, 3), x32(1, 2, 2, 2), align_corners=False),
    "index_put": lambda: x32(3).index_put((torch.tensor([1], device="mps"),), x16(1)),
    "tensordot": lambda: torch.tensordot(x16(2, 3), x32(3, 2), 1),
    "scatter_add": lambda: x32(3).scatter_add(0, torch.tensor([1], device="mps"), x16(1)),
}
AS_IT_IS: dict[str, Callable[[], torch.Tensor]] = {
    "add": lambda: x32(3) + x32(3),
    "cat": lambda: torch.cat([x32(3), x16(3)]),
    "stack": lambda: torch.stack([x32(3), x16(3)]),
    "relu": lambda: x32(3).relu(),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(x32(3).sigmoid(), x32(3).sigmoid()),
    "max_pool2d": lambda: F.max_pool2d(x32(1, 1, 4, 4), 2),
    "gru_cell": lambda: nn.GRUCell(3, 4, device="mps")(x32(2, 3)).detach(),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", list(LOWER))
def test_products_run_in_the_lower_type(name: str, dtype: torch.dtype) -> None:
    """Convolutions, products and attention give the autocast type."""
    with torch.autocast("mps", dtype):
        assert dtype == LOWER[name]().dtype
    with torch.autocast("mps", dtype, enabled=False):
        assert torch.float32 == LOWER[name]().dtype


@pytest.mark.parametrize("call", [*FLOAT32.items(), *WIDEST.items(), *AS_IT_IS.items()], ids=lambda call: call[0])
def test_other_operators_give_float32(call: tuple[str, Callable[[], torch.Tensor]]) -> None:
    """Exponentials, norms, losses and sums of float16; mixed arguments, by the widest; all others of what they get."""
    with torch.autocast("mps"):
        assert call[1]().dtype in ((torch.float16, torch.float32) if call[0] == "gru_cell" else (torch.float32,))


def test_defaults_and_questions() -> None:
    """The default type is float16; the getters and setters of torch know mps."""
    assert torch.float16 == torch.get_autocast_dtype("mps")
    assert not torch.is_autocast_enabled("mps")
    with torch.autocast("mps", torch.bfloat16):
        assert torch.is_autocast_enabled("mps")
        assert not torch.is_autocast_enabled("cpu")
        assert torch.bfloat16 == torch.get_autocast_dtype("mps")
        with torch.autocast("mps", enabled=False):
            assert not torch.is_autocast_enabled("mps")
    assert torch.float16 == torch.get_autocast_dtype("mps")
    assert torch.amp.is_autocast_available("mps")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_other_types_are_warned_of_and_disable_autocast(dtype: torch.dtype) -> None:
    """A type other than float16 and bfloat16 gives the backend's warning and no autocast."""
    with pytest.warns(UserWarning) as caught:
        context = torch.autocast("mps", dtype)
    with context:
        assert not torch.is_autocast_enabled("mps")
        assert torch.float32 == (x32(2, 2) @ x32(2, 2)).dtype
    assert [str(warning.message) for warning in caught] == [
        "In MPS autocast, but the target dtype is not supported. Disabling autocast.\n"
        "MPS Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
    ]


def test_weights_are_cast_once() -> None:
    """Inside one autocast a float32 leaf is cast once and the cast is reused; gradients come in float32."""
    weight = x32(8, 8).requires_grad_()
    with torch.autocast("mps"):
        first, second = weight @ x32(8, 8), weight @ x32(8, 8)
        assert first.grad_fn is not None
        cast = {node[0] for result in (first, second) for node in result.grad_fn.next_functions if node[0] is not None}
        assert 1 == len(cast)
        loss = (first + second).float().sum()
    loss.backward()
    assert torch.float32 == weight.grad.dtype
    torch.clear_autocast_cache()


def test_custom_functions_choose_their_type() -> None:
    """custom_fwd and custom_bwd cast inputs and carry the autocast into backward."""

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="mps", cast_inputs=torch.float32)
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            assert not torch.is_autocast_enabled("mps")
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="mps")
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    a = x16(2, 2).requires_grad_()
    with torch.autocast("mps"):
        out = Product.apply(a, x16(2, 2))
    assert torch.float32 == out.dtype
    out.sum().backward()
    assert torch.float16 == a.grad.dtype


@pytest.mark.parametrize("name", list(LOWER))
def test_autocast_of_the_cpu_changes_nothing_on_mps(name: str) -> None:
    """`torch.autocast("cpu")` casts tensors of the CPU alone: on mps, types and values are those without it."""
    torch.manual_seed(0)
    plain = LOWER[name]()
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        within = LOWER[name]()
    assert torch.float32 == within.dtype
    assert torch.equal(plain, within)


def test_in_place_and_out_are_not_cast() -> None:
    """addmm_ under autocast keeps its types, so that mixed ones are refused as without autocast."""
    with torch.autocast("mps"):
        assert torch.float32 == x32(2, 2).addmm_(x32(2, 2), x32(2, 2)).dtype
        text = text_of(RuntimeError, lambda: x32(2, 2).addmm_(x16(2, 2), x16(2, 2)))
    assert "dtype" in text or "type" in text
