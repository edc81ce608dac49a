"""Attention kernels of kernels-community (flash and paged): run in all forms, and held to torch.

What a program for torch has to write into the text is written there: values of function constants, and threadgroup
memory that is declared in the kernel and is no parameter.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
from torch.nn import functional

from public_kernels import both_forms, empty, joined, on_mps, root_of, with_constants, with_threadgroup_memory

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("virtual_device")]

COMMUNITY = "huggingface/kernels-community"


def source(file: str, constants: dict[str, str]) -> str:
    """All of a file before its instances, which are many."""
    text = joined(root_of(COMMUNITY), [file])
    return with_constants(text[: text.index("#define instantiate_", text.rindex("[[kernel"))], constants)


def instance(name: str, template: str) -> str:
    """One of them."""
    return f'template [[host_name("{name}")]] [[kernel]] decltype({template}) {template};\n'


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("dtype", ["float", "half"])
def test_flash_attention_of_sequences_of_several_lengths(dtype: str, causal: bool) -> None:
    """metal-flash-sdpa: sequences of several lengths, one behind the other, with four query heads on two of keys."""
    kernel = flash(dtype, causal)
    lengths, heads, size = [40, 7, 33], 4, 32
    tokens = sum(lengths)
    torch.manual_seed(0)
    kind = torch.float32 if dtype == "float" else torch.float16
    q, k, v = (torch.randn(tokens, count, size).to(kind) for count in (heads, 2, 2))
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    scale = size**-0.5
    parts = (len(lengths), heads, size, 0, 0, 2, scale, 1.0, *[0] * 7, *[0] * 12, tokens, tokens, *[max(lengths)] * 2)
    params = torch.tensor(list(struct.pack("6i2f7i4x12q4i", *parts)), dtype=torch.uint8, device="mps")
    out = empty(tokens, heads, size, dtype=kind)
    blocks = -(-max(lengths) // 32)
    none = empty(1, dtype=torch.int64)
    kernel(
        *on_mps(q, k, v),
        out,
        params,
        none,
        empty(1),
        *on_mps(ends, ends),
        threads=(blocks * 32, heads * 4, len(lengths)),
        group_size=(32, 4, 1),
    )
    expected = torch.cat(
        [
            functional.scaled_dot_product_attention(
                *(tensor.float().transpose(0, 1) for tensor in one), is_causal=causal, scale=scale, enable_gqa=True
            ).transpose(0, 1)
            for one in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
        ]
    )
    tolerance = 1e-5 if dtype == "float" else 2e-3
    torch.testing.assert_close(out.cpu().float(), expected, rtol=tolerance, atol=tolerance)


def flash(dtype: str, causal: bool) -> Any:
    """The kernel for heads of 32."""
    text = source(
        "metal-flash-sdpa/sdpa-metal/scaled_dot_product_attention.metal",
        {"align_Q": "false", "align_K": "false", "has_mask": "false", "do_causal": str(causal).lower()},
    )
    return both_forms(text + instance("flash", f"attention<{dtype}, 32, 32, 32, 4, 1, {dtype}, float>")).flash


@pytest.mark.parametrize("partition", [0, 64], ids=["at once", "in partitions"])
def test_paged_attention(partition: int) -> None:
    """paged-attention: keys and values in blocks of 16 that lie anywhere; also in parts that a second kernel joins."""
    kernels = paged(partition)
    heads, keys, size, block, pages = 4, 2, 64, 16, 20
    contexts = [100, 5, 129]
    torch.manual_seed(0)
    query = torch.randn(len(contexts), heads, size)
    key, value = torch.randn(pages, keys, block, size), torch.randn(pages, keys, block, size)
    order = torch.randperm(pages)
    table = torch.zeros(len(contexts), 9, dtype=torch.int32)
    used = 0
    for row, length in enumerate(contexts):
        count = -(-length // block)
        table[row, :count] = order[used : used + count]
        used += count
    parts = max(-(-max(contexts) // partition), 1) if partition else 1
    sums, tops = empty(len(contexts), heads, parts), empty(len(contexts), heads, parts)
    found = empty(len(contexts), heads, parts, size)
    # Keys lie as [page, head, size / x, block, x], where x of them are 16 bytes; values as [page, head, size, block].
    kept = key.unflatten(3, (size // 4, 4)).transpose(2, 3).contiguous(), value.transpose(2, 3).contiguous()
    one = torch.ones(1)
    lengths = torch.tensor(contexts, dtype=torch.int32).to("mps")
    kernels.paged(
        *(sums, tops, found, *on_mps(query, *kept, one, one)),
        *(keys, size**-0.5, 1.0, table.to("mps"), lengths, 9, empty(heads)),
        *(heads * size, keys * size * block, size * block),
        threads=(heads * 256, len(contexts), parts),
        group_size=(256, 1, 1),
    )
    if partition:
        out = empty(len(contexts), heads, size)
        launch = {"threads": (heads * 256, len(contexts), 1), "group_size": (256, 1, 1)}
        kernels.join(out, sums, tops, found, lengths, parts, **launch)
    else:
        out = found[:, :, 0]
    for row, length in enumerate(contexts):
        rows = [cache[table[row].long()].transpose(0, 1).flatten(1, 2)[:, :length] for cache in (key, value)]
        expected = functional.scaled_dot_product_attention(query[row][:, None], *rows, enable_gqa=True)[:, 0]
        torch.testing.assert_close(out[row].cpu(), expected, rtol=1e-5, atol=1e-5)


def paged(partition: int) -> Any:
    """The kernel for heads of 64 and blocks of 16, in groups of 256, and the one that joins partitions."""
    text = source(
        "paged-attention/paged-attention-metal/attention/paged_attention.metal",
        {"use_partitioning": str(partition > 0).lower(), "use_alibi": "false", "use_fp8_scales": "false"},
    )
    instances = instance("paged", f"paged_attention<float, float, 64, 16, 256, 32, {partition}>")
    if partition:
        instances += instance("join", f"paged_attention_v2_reduce<float, 64, 256, 32, {partition}>")
    return both_forms(with_threadgroup_memory(text) + instances)
