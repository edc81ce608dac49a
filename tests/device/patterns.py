"""The patterns of random lines, and the words of their blanks; `programs` fills them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

Suits = Callable[[torch.Tensor], bool]

WORDS = {
    "unary": """neg abs exp sin sqrt log1p sigmoid tanh relu floor ceil round trunc sign square reciprocal erf frac exp2
        rsqrt sgn cos isnan isfinite logical_not bitwise_not positive nan_to_num angle conj_physical expm1 log2 atan
        sinh signbit digamma lgamma real imag conj isreal triu tril ravel""",
    "unary_": """neg_ abs_ exp_ sin_ sqrt_ sigmoid_ tanh_ relu_ floor_ round_ sign_ square_ logical_not_ bitwise_not_
        zero_ t_ squeeze_ erf_ reciprocal_ nan_to_num_ detach_ triu_""",
    "binary": """add sub mul div maximum minimum pow atan2 eq lt ge ne logical_and logical_xor bitwise_and bitwise_or
        copysign hypot xlogy fmax logaddexp true_divide""",
    "binary_": "add_ mul_ sub_ div_ copy_ pow_ eq_ lt_ logical_or_ bitwise_xor_ atan2_ copysign_",
    "activation": "gelu silu softplus hardtanh leaky_relu elu hardswish mish logsigmoid selu relu6",
    "sign": "+ - * / > <= @",
    "to_out": "add mul sub maximum eq div mm bmm dot mv pow logical_and",
    "whole": "sum mean prod amax amin any all argmax std var logsumexp nansum count_nonzero median aminmax unique",
    "along": """sum mean amax any std var logsumexp argmin prod cumsum cumprod sort argsort max min softmax log_softmax
        cummax flip logcumsumexp unbind""",
    "loss": "smooth_l1_loss l1_loss huber_loss binary_cross_entropy_with_logits",
    "foreach": "sqrt exp neg abs sigmoid reciprocal floor zero_ neg_ sqrt_ exp_",
    "foreach2": "add sub mul div maximum add_ sub_ mul_ div_ copy_",
    "dtype": "float32 float32 float32 int64 float16 bool int32 uint8 bfloat16 int16 complex64 int8",
    "format": "contiguous_format preserve_format channels_last",
    "number": "2 0.5 -1 3.0 0 True -2.5 1j",
    "scalar": "HALF THREE TRUE WIDE",
}  # fmt: skip


class Kind(NamedTuple):
    """Patterns with an `x` that suits, mostly; `weight` is how often one of them is drawn.

    `one_on_mps` is the operator that a Mac runs where the CPU runs several: its dtypes decide.
    """

    weight: int
    patterns: str
    suits: Suits | None = None
    one_on_mps: str = ""


def is_float(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point


FACTORIES = """
    make({shape}, torch.{dtype}, {0to9})
    make({shape}, torch.{dtype}, {0to9})
    make({shape}, torch.{dtype}, {0to9})
    torch.zeros({shape}, dtype={type}, device=DEVICE)
    torch.full({shape}, {number}, device=DEVICE)
    torch.arange({0to2}, 9, {1to2}, dtype={type}, device=DEVICE)
    torch.linspace(-1, {0to4}, {0to7}, device=DEVICE)
    torch.eye({0to4}, {1to4}, dtype={type}, device=DEVICE)
    torch.tensor([[1.5, -2.0], [0.0, {0to9}]], device=DEVICE)
    fill(torch.empty_strided((2, 3, 2), ({0to7}, {0to4}, {0to2}), device=DEVICE))
"""

KINDS = (
    Kind(3, FACTORIES),
    Kind(1, """
        torch.ones_like({x}, dtype=torch.{dtype}, memory_format=torch.{format})
        {x}.new_full({shape}, {number})
        torch.zeros_like({x}, requires_grad={bool})
        torch.full_like({x}, {number})
        {x}.new_empty_strided((2, 2), (1, 2)).zero_()
    """),
    Kind(3, """
        torch.{unary}({x})
        torch.{unary}({x})
        F.{activation}({x})
        {x}.clamp({number}, 2)
        {x}.triu({-1to1})
    """),
    Kind(2, """
        torch.view_as_real({x})
        torch.real({x})
        {x}.imag
        {x}.conj()
        {x}.mH
    """, lambda t: t.is_complex() and not t.requires_grad),
    Kind(2, """
        {x}.{unary_}()
        {x}.fill_({number})
        {x}.fill_(THREE)
        {x}.clamp_(-1, {0to2})
        {x}.transpose_({dim}, {dim})
        {x}.unsqueeze_({dim})
        {x}.squeeze_({dim})
        {x}.addmm_({x}, {x})
    """),
    Kind(5, """
        torch.{binary}({x}, {operand})
        torch.{binary}({x}, {operand})
        {x} {sign} {y}
        {x} {sign} {number}
        torch.add({x}, {operand}, alpha={number})
        torch.where({y} > 0, {x}, {operand})
        torch.addcmul({x}, {y}, {z})
        torch.addcdiv({x}, {y}, {z}, value={number})
        torch.lerp({x}, {y}, {z})
        {number} - {x}
        {number} ** {x}
        torch.complex({x}.float(), {y}.float())
        torch.clamp({x}, {y}, {z})
        torch.addcmul({x}, {operand}, {scalar})
    """),
    Kind(1, """
        torch.{binary}({x}, host({y}))
        torch.{binary}(host({y}), {x})
        {x}.{binary_}(host({y}))
        torch.where({x} > 0, {x}, host({y}))
        torch.cat([{x}, host({same})])
        torch.mm({x}, host({x}).mT)
        torch.mm(host({x}), {x}.mT)
        torch.gather(host({x}), 0, torch.zeros_like({x}, dtype=torch.int64))
        F.softmax({x}, 0) * host({y})
    """, lambda t: t.dim() > 0 and t.numel() > 0 and not t.requires_grad),
    Kind(4, """
        {x}.{binary_}({operand})
        {x}.{binary_}({operand})
        {x}.addcmul_({y}, {z})
        {x}.lerp_({y}, 0.5)
        {x}.add_({y}, alpha={number})
        {x}.masked_fill_({y} > 0, {number})
        {x}.masked_fill_({y} > 0, HALF)
        {x}.clamp_(min={y})
    """),
    Kind(5, """
        torch.{to_out}({x}, {y}, out={o})
        torch.{to_out}({x}, {y}, out={o})
        torch.{unary}({x}, out={o})
        torch.sum({x}, {dim}, out={o})
        torch.mean({x}, {dim}, out={o})
        torch.cat([{x}, {y}], {dim}, out={o})
        torch.stack([{x}, {y}], out={x}.new_empty(0))
        torch.cumsum({x}, {dim}, out={o})
        torch.max({x}, {dim}, out=({o}, {indices}))
        torch.sort({x}, {dim}, out=({o}, {indices}))
        torch.topk({x}, 1, {dim}, out=({o}, {indices}))
        torch.clamp({x}, -1, 1, out={o})
        torch.arange({0to9}, out={o})
        torch.index_select({x}, {dim}, torch.tensor([0, 0], device=DEVICE), out={o})
        torch.gather({x}, {dim}, torch.zeros_like({x}, dtype=torch.int64), out={o})
        torch.addmm({x}, {x}, {x}.mT, out={o})
        torch.where({x} > 0, {x}, {y}, out={o})
        torch.tril({x}, out={o})
        torch.{unary}({x}, out={x})
        torch.mul({x}, {number}, out={x})
    """),
    Kind(8, """
        {x}[{0to3}:]
        {x}[::2]
        {x}[{0to2}:-1]
        {x}[..., None, {-1to1}]
        {x}.transpose({dim}, {dim})
        {x}.permute({order})
        {x}.select({dim}, {-1to1})
        {x}.narrow({dim}, {0to2}, {0to3})
        {x}.unsqueeze({dim})
        {x}.squeeze()
        {x}.expand(2, *{x}.shape)
        {x}.expand_as({y})
        {x}.diagonal({-1to1})
        {x}.unfold({dim}, {1to3}, {1to2})
        {x}.reshape({regrouped})
        {x}.view({regrouped})
        {x}.view(torch.{dtype})
        {x}.chunk({1to3}, {dim})
        {x}.split({1to3}, {dim})
        {x}.unbind({dim})[:2]
        {x}.as_strided(({0to3}, {1to3}), ({0to4}, {0to3}), {0to4})
        {x}.detach()
        {x}.flatten({0to1})
        {x}.mT
        {x}.data
        torch.movedim({x}, {dim}, 0)
        torch.view_as_complex({x})
    """, lambda t: t.dim() > 0),
    Kind(6, """
        {x}[[{first}, {first}]]
        {x}[torch.tensor([{first}], device=DEVICE)]
        {x}[torch.tensor([{first}, 0])]
        {x}[{y} > 0]
        {x}[..., {x}.bool().flatten()[:0].nonzero()[:, 0]]
        {x}.__setitem__([{first}, {first}], {value})
        {x}.__setitem__({first}, {value})
        {x}.__setitem__({y} > 0, {value})
        {x}.__setitem__((..., None), {value})
        {x}.__setitem__(slice({0to1}, None), {value})
        {x}.index_put_((torch.tensor([{first}, {first}], device=DEVICE),), {x}[[{first}]] * 2, accumulate={bool})
        torch.index_put({x}, (torch.tensor([{first}]),), HALF)
        {x}.index_select({d}, torch.tensor([{nth}, {nth}], device=DEVICE))
        {x}.index_add_({d}, torch.tensor([{nth}], device=DEVICE), {x}.select({d}, 0).unsqueeze({d}) * 2)
        {x}.index_fill_({d}, torch.tensor([{nth}], device=DEVICE), {number})
        {x}.index_copy_({d}, torch.tensor([{nth}], device=DEVICE), {x}.select({d}, 0).unsqueeze({d}) * 2)
        {x}.gather({d}, torch.zeros_like({x}, dtype=torch.int64))
        {x}.scatter_({d}, torch.zeros_like({x}, dtype=torch.int64), {number})
        {x}.scatter_({d}, torch.zeros_like({x}, dtype=torch.int64), {same})
        {x}.scatter_add_({d}, torch.zeros_like({x}, dtype=torch.int64), {same})
        {x}.scatter_reduce_({d}, torch.zeros_like({x}, dtype=torch.int64), {same}, 'amax')
        {x}.masked_select({y} > 0)
        {x}.masked_scatter_({x} > 0, {same})
        {x}.nonzero()
        {x}.take_along_dim(torch.zeros_like({x}, dtype=torch.int64), {d})
        {x}.masked_fill({y} > 0, {number})
        {x}.select_scatter({x}.select({d}, 0) * 2, {d}, 0)
        {x}.roll({-1to2}, {d})
    """, lambda t: t.dim() > 0 and t.numel() > 0),
    Kind(3, """
        torch.{whole}({x})
        torch.{along}({x}, {dim})
        torch.{along}({x}, {dim})
        torch.sum({x}, ({dim}, {dim}), {bool})
        {x}.sum({dim}, dtype={type})
        torch.mean({x}, {dim}, {bool})
        torch.topk({x}, {0to2}, {dim})
        torch.sort({x}, {dim}, descending={bool}, stable=True)
        torch.linalg.vector_norm({x}, {1to2}, {dim})
        torch.norm({x}.float())
        torch.equal({x}, {y})
    """),
    Kind(2, """
        torch.cat([{x}, {same}], {dim})
        torch.cat([{x}, {y}], {dim})
        torch.stack([{x}, {same}], {dim})
        {x}.repeat(2, *[1 for _ in {x}.shape])
        torch.meshgrid({x}.flatten(), {y}.flatten()[:2], indexing='ij')
        torch.broadcast_tensors({x}, {y})
        {x}.repeat_interleave({0to2})
        F.pad({x}, ({-1to1}, {0to2}), value={number})
        torch.hstack([{x}, {y}])
    """),
    Kind(1, """
        F.linear({x}.detach(), {rows}.detach().to({x}.dtype)).clone()
        F.linear({x}.detach(), {rows}.detach().to({x}.dtype), make({rows}.shape[:1], {x}.dtype, 8)).clone()
    """, lambda t: t.dim() > 1 and t.shape[-1] > 0, one_on_mps="linear"),
    Kind(2, """
        torch.matmul({x}, {rows}.mT)
        torch.mm({x}, {rows}.mT)
        torch.bmm({x}, {x}.mT)
        torch.mv({x}, {rows}.flatten())
        torch.dot({x}.reshape(-1), {x}.reshape(-1))
        torch.addmm({y}, {x}, {rows}.mT, beta={0to1})
        torch.einsum('...i,...i->...', {x}, {y})
        torch.outer({x}.reshape(-1)[:3], {y}.reshape(-1)[:4])
        torch.baddbmm({y}, {x}, {x}.mT)
        torch.cdist({x}, {rows})
        torch.linalg.multi_dot([{x}, {rows}.mT])
    """, lambda t: t.dim() > 0),
    Kind(3, """
        F.layer_norm({x}, {x}.shape[-1:], make({x}.shape[-1:], {x}.dtype, 1))
        F.layer_norm({x}, {x}.shape[-1:])
        F.batch_norm({x}, None, None, training=True)
        F.group_norm({x}.contiguous(), 1, make({x}.shape[1:2], {x}.dtype, 2))
        F.rms_norm({x}, {x}.shape[-1:])
        F.softmax({x}, {dim})
        F.conv2d({image}, make((3, 1, {1to2}, 2), {x}.dtype, 3), padding={0to1})
        F.conv_transpose2d({image}, make((1, 2, 2, {1to2}), {x}.dtype, 4), stride={1to2})
        F.conv1d({image}[:, 0], make((2, {x}.numel() // {x}.shape[-1], 1), {x}.dtype, 5))
        F.max_pool2d({image}, {1to2}, padding={0to1})
        F.avg_pool2d({image}, {1to2})
        F.interpolate({image}, scale_factor=2, mode='bilinear')
        F.interpolate({image}, scale_factor=2)
        F.mse_loss({x}, {y})
        F.{loss}({x}, {y})
        F.cross_entropy({x}.reshape(-1, {x}.shape[-1]), torch.zeros_like({x}[..., 0], dtype=torch.int64).reshape(-1))
        F.embedding(torch.tensor([[0, 0], [0, 0]], device=DEVICE), {x})
        F.glu({x}, {dim})
        F.normalize({x}.float(), dim={dim})
        F.unfold({image}, {1to2})
        F.prelu({x}, make((1,), {x}.dtype, 6))
        F.adaptive_avg_pool2d({image}, 1)
        {x}._neg_view()
        F.one_hot(torch.tensor([0, 2], device=DEVICE), 4)
    """, lambda t: t.dim() >= 2 and is_float(t) and t.numel() > 0),
    Kind(4, """
        {x}.to({type})
        {x}.copy_({y})
        {x}.clone()
        {x}.clone(memory_format=torch.{format})
        {x}.contiguous(memory_format=torch.{format})
        {x}.to(memory_format=torch.{format})
        {x}.to({type}, copy=True)
        {x}.copy_(host({y}))
        {x}.copy_({y}, non_blocking=True)
        {x}.type_as({y})
        host({x}).to(DEVICE, copy=True)
        host({x}).to(DEVICE, {type}, copy=True)
        host({x}).transpose(0, -1).to(DEVICE, copy=True)
    """),
    Kind(3, """
        {x}.resize_({shape}); fill({x})
        {x}.resize_(2, 3, 2, 1, memory_format=torch.channels_last); fill({x})
        {x}.resize_as_({y}); fill({x})
        {x}.resize_(0)
        {x}.set_({typed})
        {x}.set_({typed}.untyped_storage(), {0to2}, ({0to2}, {1to2}), (2, 1)); fill({x})
        {x}.set_()
        {x}.as_strided_(({1to3},), ({0to2},), {0to2}); fill({x})
        setattr({x}, 'data', {o})
        torch.swap_tensors({x}, {o})
    """, lambda t: not t.requires_grad),
    Kind(2, """
        torch._foreach_{foreach}([{x}, {same}])
        torch._foreach_{foreach2}([{x}, {same}], [{y}, {z}])
        torch._foreach_{foreach2}([{x}, {same}], {number})
        torch._foreach_addcmul([{x}], [{y}], [{z}], value=0.5)
        torch._foreach_addcdiv_([{x}], [{y}], [{z}], value=0.5)
        torch._foreach_norm([{x}.abs(), {y}.abs()])
        torch._foreach_lerp([{x}], [{same}], 0.25)
        torch._foreach_mul_([{x}, {same}], HALF)
        torch._foreach_add([{x}, {y}], [1, 2.5])
        torch._foreach_clamp_min_([{x}, {y}], {number})
    """),
    Kind(3, """
        {x}.requires_grad_()
        {x}.requires_grad_()
        {x}.detach().requires_grad_()
        {x}.detach().{unary_}()
        torch.nn.Parameter({x}.detach())
        {x}.requires_grad_(False)
        {x}.clone().requires_grad_()[0]
    """, lambda t: t.is_leaf and (is_float(t) or t.is_complex())),
    Kind(4, """
        ({x} * 1).abs().sum().backward()
        ({x} * {x}).abs().sum().backward(retain_graph=True)
        {x}.backward(torch.ones_like({x}))
        torch.autograd.grad({x}.abs().sum(), [{grown}], allow_unused=True)
        torch.autograd.grad(({x} * {grown}).abs().sum(), [{grown}, {x}], create_graph=True, allow_unused=True)
        torch.autograd.backward([{x}.abs().sum(), {grown}.abs().sum()])
        {x}.retain_grad()
        {x}.detach_()
        torch.no_grad()({x}.add_)(1)
        torch.no_grad()({x}.copy_)({y})
        torch.no_grad()({x}.clone)()
        {x}.detach().zero_()
    """, lambda t: t.requires_grad),
    Kind(2, """
        {x}.grad.zero_()
        {x}.grad
        {x}.grad.mul_({y})
        setattr({x}, 'grad', None)
        torch.nn.utils.clip_grad_norm_([{x}], 0.5, foreach=False)
        torch.nn.utils.clip_grad_value_([{x}], 0.5, foreach=False)
        torch.optim.SGD([{x}], 0.1, momentum=0.9, foreach={bool}).step()
        torch.optim.AdamW([{x}], 0.1, foreach={bool}).step()
    """, lambda t: t.is_leaf and is_float(t) and t.grad is not None),
    # The CPU's fused kernels write past the end of a parameter whose elements do not fill its memory.
    Kind(1, """
        torch.optim.Adam([{x}], 0.1).step()
        torch.optim.SGD([{x}], 0.1, fused=True).step()
    """, lambda t: t.is_leaf and is_float(t) and t.grad is not None and t.is_contiguous() and t.grad.is_contiguous()),
)  # fmt: skip
