"""Attention: scaled_dot_product_attention with every option, MultiheadAttention, Transformer layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from device.compare import same, same_gradients, same_module, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

attention = nn.functional.scaled_dot_product_attention


def qkv(dtype: torch.dtype = torch.float32, keys: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        values(2, 4, 5, 8, dtype=dtype),
        values(2, 4, keys, 8, dtype=dtype, seed=1),
        values(2, 4, keys, 8, dtype=dtype, seed=2),
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": values(5, 6) > 0},
        {"attn_mask": values(5, 6)},
        {"attn_mask": values(2, 1, 5, 6)},
        {"attn_mask": (values(2, 1, 1, 6) > -0.5)},
    ],
    ids=["plain", "causal", "scale", "bool mask", "float mask", "batched mask", "key mask"],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_attention_equals_that_of_the_cpu(options: dict[str, Any], gradients: bool) -> None:
    """Values and gradients agree for masks, causality and scale."""
    if "attn_mask" in options and options["attn_mask"].dtype == torch.bool:
        options = {"attn_mask": options["attn_mask"] | torch.eye(5, 6).bool()}  # no row may be empty
    (same_gradients if gradients else same)(attention, *qkv(), strides=False, **options)


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 2, 3, 5, 8)], ids=str)
def test_any_number_of_batch_dimensions(shape: tuple[int, ...]) -> None:
    """Attention takes no batch dimension, one, or more than two."""
    same(attention, values(*shape), values(*shape, seed=1), values(*shape, seed=2), strides=False)


def test_grouped_queries_and_other_value_sizes() -> None:
    """enable_gqa repeats keys and values; the value size may differ from the query size."""
    q, k, v = values(2, 4, 5, 8), values(2, 2, 6, 8), values(2, 2, 6, 8, seed=1)
    same(attention, q, k, v, enable_gqa=True, strides=False)
    same_gradients(attention, q, k, v, enable_gqa=True)
    same(attention, *qkv()[:2], values(2, 4, 6, 3), strides=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    """Attention in half precision is close to float32's."""
    result = attention(*(t.to("mps") for t in qkv(dtype)))
    assert dtype == result.dtype
    torch.testing.assert_close(result.float().cpu(), attention(*(t.float() for t in qkv(dtype))), rtol=3e-2, atol=3e-2)


def test_dropout_is_drawn_on_the_device() -> None:
    """dropout_p in training draws from the mps generator and follows its seed."""
    q, k, v = (t.to("mps").requires_grad_() for t in qkv())
    torch.manual_seed(0)
    first = attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(0)
    assert torch.equal(first, attention(q, k, v, dropout_p=0.5))
    assert not torch.equal(first, attention(q, k, v, dropout_p=0.5))
    first.sum().backward()
    assert q.grad.isfinite().all()


def test_wrong_arguments_are_refused() -> None:
    """Mixed dtypes, wrong ranks, a mask beside is_causal and mixed devices raise torch's texts."""
    q, k, v = qkv()
    same(attention, q, k.half(), v)
    same(attention, q[0, 0, 0], k, v)
    both = {"attn_mask": values(5, 6).to("mps"), "is_causal": True}  # the CPU's kernel takes both
    text = text_of(RuntimeError, attention, *(t.to("mps") for t in (q, k, v)), **both)
    assert text == "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
    same(attention, q, k, v, attn_mask=torch.ones(5, 6, dtype=torch.int32))
    text = text_of(RuntimeError, attention, q.to("mps"), k, v.to("mps"))
    assert text.startswith("Expected query, key, and value to have the same device type, but got query.device: mps:0")


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True}, {"kdim": 6, "vdim": 6}, {"add_bias_kv": True}, {"bias": False}], ids=str
)
def test_multihead_attention(options: dict[str, Any], need_weights: bool) -> None:
    """nn.MultiheadAttention agrees in training, with and without weights."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, **options)
    size = options.get("kdim", 8)
    same_module(
        module, values(3, 3, 8), values(3, 3, size, seed=1), values(3, 3, size, seed=2), need_weights=need_weights
    )


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_layers(train: bool, norm_first: bool) -> None:
    """Encoder and decoder layers agree, in training and in evaluation, where the CPU takes its fast path."""
    torch.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    encoder = nn.TransformerEncoderLayer(8, 2, 16, **options).train(train)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, **options).train(train)
    x, memory = values(2, 4, 8), values(2, 5, 8)
    if train:
        same_module(encoder, x)
        same_module(decoder, x, memory)
        return
    with torch.no_grad():
        same(lambda m, t: m(t), encoder, x, strides=False)
        same(lambda m, t, u: m(t, u), decoder, x, memory, strides=False)
