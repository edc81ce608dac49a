"""Calls that a Mac is timed at, as `benchmarks/times` has them, and how to make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from anymps.cost import OperatorCall

Mode = Literal["pipe", "sync"]
"""Many calls back to back, or each call waited for."""

Tensors = list[Any]


class TimedCall(NamedTuple):
    """One call: its text, what makes it of torch and its inputs, and whether each call is waited for.

    `reads` says that the call waits by itself, so that nothing else need wait for it.
    """

    text: str
    make: Callable[[Any, Tensors], object]
    mode: Mode = "pipe"
    reads: bool = False

    @property
    def call(self) -> OperatorCall:
        """The call as a prediction takes it."""
        return OperatorCall.parse(self.text)


def prepare(case: TimedCall, device: Any) -> Callable[[], object]:
    """The call with inputs of its own on the device, those on the CPU there."""
    import torch

    tensors = [tensor(torch, text, device) for text in case.call.inputs]
    wait = torch.mps.synchronize if case.mode == "sync" and not case.reads else None

    def once() -> None:
        case.make(torch, tensors)
        if wait is not None:
            wait()

    return once


def tensor(torch: Any, text: str, device: Any) -> Any:
    name, _, rest = text.partition("[")
    shape = [int(size) for size in rest.partition("]")[0].split(",") if size]
    where = "cpu" if text.endswith(" on cpu") else device
    if name == "int64":
        # Rows of a table in no order: a stride that has no factor in common with the sizes that are used.
        return (torch.arange(*shape, device="cpu") * 7919 % 30000).to(where)
    return torch.rand(shape, dtype=getattr(torch, name), device="cpu").to(where)


def _square(n: int, dtype: str = "float32") -> str:
    return f"{dtype}[{n}, {n}]"


def _conv(images: int, size: int, inside: int, outside: int, window: int) -> tuple[str, str, str]:
    """Input, weight and result of a convolution that keeps the size."""
    return (
        f"float32[{images}, {inside}, {size}, {size}]",
        f"float32[{outside}, {inside}, {window}, {window}]",
        f"float32[{images}, {outside}, {size}, {size}]",
    )


def _backward(mask: list[bool]) -> Callable[[Any, Tensors], object]:
    def make(torch: Any, t: Tensors) -> object:
        padding = [t[2].shape[-1] // 2] * 2
        return torch.ops.aten.convolution_backward(*t, None, [1, 1], padding, [1, 1], False, [0, 0], 1, mask)

    return make


_A, _B, _D = _square(4096), "float32[64, 1024, 512]", "float32[8192, 1024]"
_IMAGES = "float32[32, 64, 56, 56]"
_BINARY: Final = [
    TimedCall(f"aten::add.Tensor({shape}, {shape}) -> ({shape})", lambda _, t: t[0] + t[1])
    for shape in ("float32[2048, 4096]", _A, "float32[8192, 4096]", _square(4096, "float16"))
]
_PRODUCTS: Final = [
    TimedCall(f"aten::mm({side}, {side}) -> ({side})", lambda torch, t: torch.mm(*t))
    for dtype in ("float32", "float16", "bfloat16")
    for side in (_square(n, dtype) for n in (1024, 2048, 4096))
]
_BATCHES: Final = [
    TimedCall(
        f"aten::bmm({dtype}[{b}, {m}, {k}], {dtype}[{b}, {k}, {n}]) -> ({dtype}[{b}, {m}, {n}])",
        lambda torch, t: torch.bmm(*t),
    )
    for dtype, b, m, k, n in (
        ("float32", 96, 512, 64, 512),
        ("float32", 96, 512, 512, 64),
        ("float32", 32, 1024, 128, 1024),
        ("float16", 96, 512, 64, 512),
    )
]
_LAYERS: Final = [
    _conv(32, 56, 64, 64, 3),
    _conv(32, 28, 128, 128, 3),
    _conv(32, 14, 256, 256, 3),
    _conv(32, 56, 256, 64, 1),
]
_CONVOLUTIONS: Final = [
    case
    for given, weight, made in _LAYERS
    for case in (
        TimedCall(
            f"aten::convolution({given}, {weight}) -> ({made})",
            lambda torch, t: torch.conv2d(t[0], t[1], padding=t[1].shape[-1] // 2),
        ),
        TimedCall(
            f"aten::convolution_backward({made}, {given}, {weight}) -> ({given})",
            _backward([True, False, False]),
        ),
        TimedCall(
            f"aten::convolution_backward({made}, {given}, {weight}) -> ({weight})",
            _backward([False, True, False]),
        ),
    )
]
_REDUCTIONS: Final = [
    TimedCall(f"aten::sum({_A}) -> (float32[])", lambda _, t: t[0].sum()),
    TimedCall(f"aten::sum.dim_IntList({_A}) -> (float32[4096]) {{axis=-1}}", lambda _, t: t[0].sum(-1)),
    TimedCall(f"aten::sum.dim_IntList({_B}) -> (float32[64, 512]) {{axis=1}}", lambda _, t: t[0].sum(1)),
    TimedCall(f"aten::sum.dim_IntList({_A}) -> (float32[4096]) {{axis=0}}", lambda _, t: t[0].sum(0)),
    TimedCall(f"aten::argmax({_A}) -> (int64[4096]) {{axis=-1}}", lambda _, t: t[0].argmax(-1)),
    TimedCall(f"aten::argmax({_B}) -> (int64[64, 512]) {{axis=1}}", lambda _, t: t[0].argmax(1)),
]
_NORMS: Final = [
    TimedCall(f"aten::_softmax({_A}) -> ({_A}) {{axis=-1}}", lambda _, t: t[0].softmax(-1)),
    TimedCall(f"aten::_log_softmax({_A}) -> ({_A}) {{axis=-1}}", lambda _, t: t[0].log_softmax(-1)),
    TimedCall(
        f"aten::_softmax_backward_data({_A}, {_A}) -> ({_A}) {{axis=-1}}",
        lambda torch, t: torch._softmax_backward_data(*t, -1, torch.float32),
    ),
    TimedCall(
        f"aten::native_layer_norm({_D}, float32[1024], float32[1024]) -> ({_D}, float32[8192, 1], float32[8192, 1])",
        lambda torch, t: torch.native_layer_norm(t[0], [1024], t[1], t[2], 1e-5),
    ),
    TimedCall(
        f"aten::native_layer_norm_backward({_D}, {_D}, float32[8192, 1], float32[8192, 1], float32[1024],"
        f" float32[1024]) -> ({_D}, float32[1024], float32[1024])",
        lambda torch, t: torch.ops.aten.native_layer_norm_backward(*t[:2], [1024], *t[2:], [True, True, True]),
    ),
    TimedCall(
        f"aten::native_batch_norm({_IMAGES}, float32[64], float32[64], float32[64], float32[64])"
        f" -> ({_IMAGES}, float32[64], float32[64])",
        lambda torch, t: torch.native_batch_norm(*t, True, 0.1, 1e-5),
    ),
]
_ROWS: Final = [
    TimedCall(
        f"aten::embedding(float32[30000, 1024], int64[8192]) -> ({_D})",
        lambda torch, t: torch.embedding(*t),
    ),
    TimedCall(
        f"aten::index_put_(float32[30000, 1024], int64[8192], {_D}) -> ()",
        lambda _, t: t[0].index_put_((t[1],), t[2]),
    ),
    TimedCall(
        f"aten::embedding_dense_backward({_D}, int64[8192]) -> (float32[30000, 1024])",
        lambda torch, t: torch.ops.aten.embedding_dense_backward(*t, 30000, -1, False),
    ),
    TimedCall(
        "aten::sort(float32[1024, 4096]) -> (float32[1024, 4096], int64[1024, 4096])",
        lambda _, t: t[0].sort(),
    ),
    TimedCall(f"aten::cumsum({_D}) -> ({_D}) {{axis=-1}}", lambda _, t: t[0].cumsum(-1)),
]
_OTHERS: Final = [
    TimedCall(f"aten::relu({_A}) -> ({_A})", lambda torch, t: torch.relu(*t)),
    TimedCall(f"aten::gelu({_A}) -> ({_A})", lambda torch, t: torch.nn.functional.gelu(*t)),
    TimedCall(f"aten::clone({_A}) -> ({_A})", lambda _, t: t[0].clone()),
    TimedCall(f"aten::cat(float32[2048, 4096], float32[2048, 4096]) -> ({_A})", lambda torch, t: torch.cat(t)),
    TimedCall(f"aten::zero_({_A}) -> ()", lambda _, t: t[0].zero_()),
    TimedCall(f"aten::uniform_({_A}) -> ()", lambda _, t: t[0].uniform_()),
    TimedCall(
        "aten::max_pool2d(float32[32, 64, 112, 112]) -> (float32[32, 64, 56, 56])",
        lambda torch, t: torch.max_pool2d(*t, 3, 2, 1),
    ),
    TimedCall(
        f"aten::binary_cross_entropy({_A}, {_A}) -> (float32[])",
        lambda torch, t: torch.nn.functional.binary_cross_entropy(*t),
    ),
    TimedCall(
        "aten::linear(float32[8192, 768], float32[3072, 768], float32[3072]) -> (float32[8192, 3072])",
        lambda torch, t: torch.nn.functional.linear(*t),
    ),
    TimedCall(
        "aten::linear(float16[1, 4096], float16[14336, 4096]) -> (float16[1, 14336])",
        lambda torch, t: torch.nn.functional.linear(*t),
    ),
    TimedCall(
        f"aten::linear({_square(2048)}, {_square(2048)}) -> ({_square(2048)}) {{transposed}}",
        lambda torch, t: torch.nn.functional.linear(t[0].t(), t[1]),
    ),
    TimedCall(
        "aten::convolution(float32[32, 256, 1024], float32[256, 256, 3]) -> (float32[32, 256, 1024])",
        lambda torch, t: torch.conv1d(*t, padding=1),
    ),
    TimedCall(
        "aten::scaled_dot_product_attention({0}, {0}, {0}) -> ({0})".format("float32[8, 12, 1024, 64]"),
        lambda torch, t: torch.nn.functional.scaled_dot_product_attention(*t),
    ),
]
_HOST: Final = [
    *(
        TimedCall(f"aten::{name}(float32[1], float32[1]) -> (float32[1])", make, mode)
        for mode in ("pipe", "sync")
        for name, make in (
            ("add.Tensor", lambda torch, t: torch.add(*t)),
            ("mul.Tensor", lambda torch, t: torch.mul(*t)),
            ("maximum", lambda torch, t: torch.maximum(*t)),
            # Through MPSGraph in every release so far; those above are kernels of PyTorch's own since torch 2.10.
            ("threshold_backward", lambda torch, t: torch.ops.aten.threshold_backward(*t, 0.5)),
            ("mse_loss_backward", lambda torch, t: torch.ops.aten.mse_loss_backward(t[0], *t, 0)),
        )
    ),
    TimedCall("aten::view(float32[1024]) -> (float32[32, 32])", lambda _, t: t[0].view(32, 32)),
    TimedCall("aten::transpose.int(float32[32, 8]) -> (float32[8, 32])", lambda _, t: t[0].transpose(0, 1)),
]
_COPIES: Final = [  # blocking ones, which wait by themselves in both directions
    *(
        TimedCall(f"aten::_to_copy({shape} on cpu) -> ({shape})", lambda _, t: t[0].to("mps"), "sync", True)
        for shape in ("float32[64]", "float32[4096]", "float32[65536]", "float32[2048, 2048]", _A)
    ),
    *(
        TimedCall(f"aten::_to_copy({shape}) -> ({shape} on cpu)", lambda _, t: t[0].to("cpu"), "sync", True)
        for shape in ("float32[64]", "float32[65536]", "float32[2048, 2048]")
    ),
]

TIMED_CALLS: Final = (
    *_HOST, *_COPIES, *_BINARY, *_OTHERS, *_PRODUCTS, *_BATCHES, *_CONVOLUTIONS, *_REDUCTIONS, *_NORMS, *_ROWS
)  # fmt: skip
"""About two thirds of a second each on a Mac with its compilation and warm-up left out."""
