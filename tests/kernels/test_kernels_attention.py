"""Launches of attention: of a few queries in one pass or two, and of more by blocks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.described import declines, describe, launch_of

from anymps.kernels.launches import Work

OPERATOR = "_scaled_dot_product_attention_math_for_mps"


def given(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **more: Any) -> dict[str, Any]:
    """The arguments of a call with these and the defaults."""
    options = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "dropout_mask": None, "scale": None, **more}
    return {"query": q, "key": k, "value": v, **options}


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **more: Any) -> Work:
    """The work of such a call."""
    return describe(OPERATOR, **given(q, k, v, **more))


def heads(rows: int, width: int = 64, count: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Two batches."""
    return torch.ones(2, count, rows, width, dtype=dtype)


def test_few_queries() -> None:
    """A group of 1024 threads for each query of a head; strides of heads, rows and batches; shared keys."""
    q, k = heads(3), heads(20, count=2)
    launch = launch_of(attention(q, k, k, scale=0.5))
    assert (launch.kernel, launch.threads, launch.group) == (
        "sdpa_vector_float_64_64_masknone",
        (8 * 1024, 3, 1),
        (1024, 1, 1),
    )
    assert launch.buffers[4:9] == (2, 20, [192, 1280, 1280], [64, 64, 64], 0.5)
    assert launch.buffers[9:] == (None, [0, 0, 0, 0], [768, 2560, 2560, 4])
    assert launch_of(attention(q, k, k)).buffers[8] == 1 / math.sqrt(64)
    assert launch_of(attention(q, k, k, is_causal=True)).kernel == "sdpa_vector_float_64_64_masknone_causal"


def test_a_mask_of_few_queries() -> None:
    """Its strides, the innermost first, and 0 where it is broadcast."""
    q, k = heads(3), heads(20)
    launch = launch_of(attention(q, k, k, attn_mask=torch.ones(1, 1, 3, 20, dtype=torch.bool)))
    assert (launch.kernel, launch.buffers[10]) == ("sdpa_vector_float_64_64_maskbool", [1, 20, 0, 0])
    launch = launch_of(attention(q, k, k, attn_mask=torch.ones(3, 1)))
    assert (launch.kernel, launch.buffers[10]) == ("sdpa_vector_float_64_64_maskfloat", [0, 1, 0, 0])


def test_many_keys_take_two_passes() -> None:
    """From 1024 on: 32 slices, whose sums and largest numbers are float32."""
    q, k = heads(2, dtype=torch.float16), heads(1024, dtype=torch.float16)
    work = attention(q, k, k)
    first, second = work.launches
    assert (first.kernel, second.kernel) == ("sdpa_vector_2pass_1_half_64_64_masknone", "sdpa_vector_2pass_2_half_64")
    assert (first.threads, first.group) == ((8 * 256, 2, 32), (256, 1, 1))
    assert (second.threads, second.group) == ((8 * 1024, 2, 1), (1024, 1, 1))
    assert first.buffers[3].shape == (2, 4, 2, 32, 64)
    assert (first.buffers[4].dtype, first.buffers[5].shape) == (torch.float32, (2, 4, 2, 32))
    assert second.buffers[:3] == first.buffers[3:6]
    assert second.buffers[3] is work.results[0]


@pytest.mark.parametrize(
    ("width", "kernel", "threads", "group"),
    [
        (72, "prefill_attention_float32_bq32_bk32_bd72_wm4_wn1", (32, 16, 2), (32, 4, 1)),
        (128, "prefill_attention_float32_bq32_bk16_bd128_wm4_wn1", (32, 16, 2), (32, 4, 1)),
        (256, "prefill_attention_float32_bq16_bk8_bd256_wm2_wn1", (64, 8, 2), (32, 2, 1)),
    ],
)
def test_many_queries(width: int, kernel: str, threads: tuple[int, ...], group: tuple[int, ...]) -> None:
    """Blocks of 32 or 16 rows; the layout of each tensor is told."""
    q, k = heads(20, width), heads(33, width)
    launch = launch_of(attention(q, k, k, is_causal=True))
    assert (launch.kernel, launch.threads, launch.group) == (f"{kernel}_hm0_dc1_maskfloat32", threads, group)
    params = launch.buffers[4]
    assert (params["qL"], params["kL"], params["gqa_factor"], params["softcapping"]) == (20, 33, 1, 1.0)
    assert params["K_strides"] == [4 * 33 * width, 33 * width, width]
    assert launch.buffers[5:] == (None, None)


def test_a_mask_of_many_queries() -> None:
    """Of truth or of the query's numbers, with an innermost stride of 1."""
    q, k = heads(20), heads(33)
    launch = launch_of(attention(q, k, k, attn_mask=torch.ones(20, 33, dtype=torch.bool)))
    assert launch.kernel.endswith("_hm1_dc0_maskbool_")
    assert launch.buffers[5] == {"M_strides": [0, 0, 33, 1]}
    launch = launch_of(attention(q, k, k, attn_mask=torch.ones(20, 1)))
    assert launch.kernel.endswith("_hm1_dc0_maskfloat32")
    assert launch.buffers[6].stride(-1) == 1


def test_three_dimensions() -> None:
    """As one batch; the result has the query's dimensions."""
    q, k = torch.ones(4, 20, 64), torch.ones(4, 33, 64)
    assert attention(q, k, k).results[0].shape == (4, 20, 64)


def test_what_is_left_to_mpsgraph() -> None:
    """Other widths, values of another width, a mask of another type, masks beside the causal one, and dropout."""
    for case in (
        given(heads(3, 80), heads(20, 80), heads(20, 80)),
        given(heads(20, 48), heads(20, 48), heads(20, 48)),
        given(heads(20), heads(20), heads(20, 96)),
        given(heads(30), heads(20), heads(20), attn_mask=torch.ones(30, 20).half()),
        given(heads(3), heads(20), heads(20), attn_mask=torch.ones(3, 20), is_causal=True),
        given(heads(3), heads(2), heads(2)),
        given(heads(30), heads(20), heads(20), dropout_p=0.5),
    ):
        assert declines(OPERATOR, **case)
