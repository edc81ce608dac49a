"""Metal kernels that other people wrote for Macs compile here, run, and give what NumPy or torch give."""

from __future__ import annotations

import hashlib

import pytest
import torch

from public_kernels import empty, library, on_mps, words

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("virtual_device")]

BNB, BNB_FILES = "mpsops/mps-bitsandbytes", "mps_bitsandbytes/kernels"
ANC = "ShoYamanishi/AppleNumericalComputing"
ZK, ZK_FILES = "carni-ships/zkMetal", "Sources/Shaders"
MARLIN = "RESMP-DEV/metal-marlin"
SPLAT = ("pierotofy/OpenSplat", "rasterizer/gsplat-metal/gsplat_metal.metal")
CALM = ("zeux/calm", "src/infer.metal")
AO = "torchao/experimental/kernels/mps/metal"
CANDLE = ("huggingface/candle", "candle-metal-kernels/src/metal_src")


def test_products_of_int8() -> None:
    """mps-bitsandbytes: tiles in threadgroup memory, and the scales of rows and columns."""
    kernels = library(BNB, f"{BNB_FILES}/int8_mm.metal")
    m, n, k = 40, 70, 50
    a, b = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((m, k), (k, n)))
    rows, columns = torch.rand(m), torch.rand(n)
    exact = a.int() @ b.int()
    whole, halves, scaled = empty(m, n, dtype=torch.int32), empty(m, n, dtype=torch.half), empty(m, n, dtype=torch.half)
    am, bm, rm, cm = on_mps(a, b, rows, columns)
    grid = {"threads": (8 * 3, 8 * 2), "group_size": (8, 8)}
    kernels.int8_matmul_tiled(am, bm, whole, m, n, k, **grid)
    kernels.int8_matmul_dequant(am, bm, halves, rm, cm, m, n, k, **grid)
    kernels.dequantize_int32_to_fp16(whole, scaled, rm, cm, m, n, threads=(n, m))
    assert torch.equal(whole.cpu(), exact)
    expected = exact * rows[:, None] * columns / 127.0**2
    for found in (halves, scaled):
        torch.testing.assert_close(found.cpu().float(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_four_bits_a_weight(kind: str) -> None:
    """mps-bitsandbytes: quantise, dequantise, and the product fused with it."""
    kernels = library(BNB, f"{BNB_FILES}/{kind}_matmul.metal")
    n, k, m, block = 33, 128, 5, 64
    weight, x, bias = torch.randn(n, k), torch.randn(m, k).half(), torch.randn(n).half()
    wm, xm, bm = on_mps(weight, x, bias)
    packed, scales, back = empty(n, k // 2, dtype=torch.uint8), empty(n, k // block), empty(n, k, dtype=torch.half)
    getattr(kernels, f"{kind}_quantize")(wm, packed, scales, n, k, block, threads=(256, n), group_size=(256, 1))
    torch.testing.assert_close(scales.cpu(), weight.view(n, -1, block).abs().amax(2))
    getattr(kernels, f"{kind}_dequantize")(packed, scales, back, n, k, block, threads=(k, n))
    restored = back.cpu().float()
    error = (restored - weight).abs().view(n, -1, block).amax(2) / scales.cpu()
    assert float(error.max()) < 0.2  # half of the widest step between two of the sixteen values
    expected = x.float() @ restored.T + bias.float()
    out = empty(m, n, dtype=torch.half)
    getattr(kernels, f"{kind}_linear_simple")(xm, packed, scales, bm, out, m, n, k, block, 1, threads=(n, m))
    torch.testing.assert_close(out.cpu().float(), expected, rtol=1e-2, atol=2e-2)
    out = empty(m, n, dtype=torch.half)
    fused = getattr(kernels, f"{kind}_matmul_fused")
    fused(xm, packed, scales, bm, out, m, n, k, block, 1, threads=(8 * 2, 8), group_size=(8, 8))
    torch.testing.assert_close(out.cpu().float(), expected, rtol=1e-2, atol=2e-2)


def test_saxpy_and_products_with_a_matrix() -> None:
    """AppleNumericalComputing: structs as arguments, dense and sparse matrices."""
    x, y = torch.randn(1000), torch.randn(1000)
    found = y.to("mps")
    library(ANC, "02_saxpy/metal/saxpy.metal").saxpy(
        x.to("mps"), found, torch.tensor([2.5], device="mps"), words(1000), threads=96, group_size=32
    )
    torch.testing.assert_close(found.cpu(), 2.5 * x + y)
    matrix, vector = torch.randn(60, 45), torch.randn(45)
    kernels = library(ANC, "09_dense_matrix_vector_mul/metal/dense_matrix_vector.metal")
    for name, stored in (("row", matrix), ("col", matrix.T.contiguous())):
        out = empty(60)
        kernel = getattr(kernels, f"mult_{name}_major_threads_over_rows")
        kernel(*on_mps(stored, vector), out, words(60, 45), threads=64)
        torch.testing.assert_close(out.cpu(), matrix @ vector, rtol=1e-4, atol=1e-4)
    matrix[torch.rand(60, 45) < 0.8] = 0
    row, column = matrix.nonzero(as_tuple=True)
    starts = torch.cat((torch.zeros(1), (matrix != 0).sum(1).cumsum(0))).int()
    out = empty(60)
    library(ANC, "08_sparse_matrix_vector_mul/metal/sparse_matrix_vector.metal").sparse_matrix_vector_row_per_thread(
        *on_mps(starts, column.int(), matrix[row, column], vector),
        out,
        words(60, 45, len(row), 1),
        threads=60,
    )
    torch.testing.assert_close(out.cpu(), matrix @ vector, rtol=1e-4, atol=1e-4)


def test_a_bitonic_sort() -> None:
    """AppleNumericalComputing: one launch for each span of swaps."""
    kernel = library(ANC, "05_radix_sort/metal/bitonic_sort.metal").bitonic_sort_one_swap_span_int
    x = torch.randint(-(2**31), 2**31, (1024,)).int()
    found = x.to("mps")
    block = 2
    while block <= 1024:
        span = block // 2
        while span:
            kernel(found, words(1024, span, block), threads=512)
            span //= 2
        block *= 2
    assert torch.equal(found.cpu(), x.sort().values)


def test_hashes() -> None:
    """zkMetal: SHA-256 of many messages and of pairs."""
    kernels = library(ZK, f"{ZK_FILES}/hash/sha256.metal")
    messages = torch.randint(0, 256, (37, 64), dtype=torch.uint8)
    expected = [hashlib.sha256(bytes(message.tolist())).digest() for message in messages]
    for kernel in (kernels.sha256_hash_batch, kernels.sha256_hash_pairs):
        out = empty(37, 32, dtype=torch.uint8)
        kernel(messages.to("mps"), out, 37, threads=37)
        assert [bytes(row) for row in out.cpu().tolist()] == expected


def test_scans_and_a_histogram() -> None:
    """zkMetal: Blelloch's scan in threadgroup memory, and atomics there."""
    kernels = library(ZK, f"{ZK_FILES}/scan/prefix_scan.metal")
    x = torch.randint(0, 1000, (700,), dtype=torch.int32)
    before = x.cumsum(0).int() - x
    for name, expected in (("inclusive", before + x), ("exclusive", before)):
        out, sums = empty(700, dtype=torch.int32), empty(1, dtype=torch.int32)
        getattr(kernels, f"{name}_scan_u32")(x.to("mps"), out, sums, 700, threads=512, group_size=512)
        assert torch.equal(out.cpu(), expected)
        assert sums.tolist() == [int(x.sum())]
    keys = torch.randint(0, 2**31, (5000,), dtype=torch.int32)
    counts = empty(2, 256, dtype=torch.int32)
    library(ZK, f"{ZK_FILES}/sort/radix_sort.metal").radix_histogram(
        keys.to("mps"), counts, 5000, 8, threads=512, group_size=256
    )
    for found, part in zip(counts.cpu(), (keys[:4096], keys[4096:]), strict=True):
        assert torch.equal(found.long(), torch.bincount((part >> 8) & 255, minlength=256))


def test_a_step_of_a_state_space_model() -> None:
    """metal-marlin: one token of Mamba, a sum over a SIMD group."""
    batch, inner, states = 2, 7, 16
    x, delta, b, c, d = (
        torch.randn(*size).half() for size in ((batch, inner),) * 2 + ((batch, states),) * 2 + ((inner,),)
    )
    a, state = -torch.rand(inner, states), torch.randn(batch, inner, states)
    delta, d = delta.abs(), torch.zeros_like(d)
    found, y = state.to("mps"), empty(batch, inner, dtype=torch.half)
    library(MARLIN, "src/mamba_ssm.metal").mamba_ssm_scan_decode(
        *on_mps(x, delta, a, b, c, d), found, y, batch, inner, states, threads=(batch * 32, inner), group_size=(32, 1)
    )
    xf, df, bf, cf = x.float(), delta.float(), b.float(), c.float()
    new = torch.exp(df[..., None] * a) * state + bf[:, None] * xf[..., None]
    torch.testing.assert_close(found.cpu(), new, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(y.cpu().float(), (new * cf[:, None]).sum(2), rtol=1e-2, atol=1e-2)


def test_a_cholesky_factor() -> None:
    """metal-marlin: columns one after the other, with barriers between."""
    size = 40
    root = torch.randn(size, size)
    matrix = root @ root.T + size * torch.eye(size)
    found = empty(size, size)
    kernels = library(MARLIN, "src/cholesky.metal")
    kernels.cholesky_decompose(matrix.to("mps"), found, size, 0.0, threads=256, group_size=256)
    factor = torch.linalg.cholesky(matrix)
    torch.testing.assert_close(found.cpu().tril(), factor, rtol=1e-3, atol=1e-3)
    right, solution = torch.randn(size), empty(size)
    kernels.cholesky_solve(found, right.to("mps"), solution, size, threads=1)
    expected = torch.linalg.solve_triangular(factor, right[:, None], upper=False)[:, 0]
    torch.testing.assert_close(solution.cpu(), expected, rtol=1e-3, atol=1e-3)


def test_gaussians_in_tiles() -> None:
    """OpenSplat: which tiles each gaussian hits, and where the sorted hits of a tile begin and end."""
    kernels = library(*SPLAT)
    columns, rows = 8, 6
    xys = torch.rand(20, 2) * torch.tensor([16.0 * columns, 16.0 * rows])
    radii, depths = torch.randint(1, 30, (20,)).int(), torch.rand(20) + 0.5
    low = ((xys - radii[:, None]) / 16).int().clamp(min=0)
    high = torch.minimum(((xys + radii[:, None]) / 16 + 1).int().clamp(min=0), torch.tensor([columns, rows]).int())
    expected = []
    for i in range(20):
        tiles = [y * columns + x for y in range(low[i, 1], high[i, 1]) for x in range(low[i, 0], high[i, 0])]
        depth = int(depths[i : i + 1].view(torch.int32))
        expected += [((tile << 32) | depth, i) for tile in tiles]
    hits = torch.stack([(high[:, 0] - low[:, 0]) * (high[:, 1] - low[:, 1])]).sum(0).cumsum(0).int()
    total = int(hits[-1])
    keys, which = empty(total, dtype=torch.int64), empty(total, dtype=torch.int32)
    bounds = words(columns, rows, 1, 0)
    kernels.map_gaussian_to_intersects_kernel(20, *on_mps(xys, depths, radii, hits), bounds, keys, which, threads=20)
    assert list(zip(keys.tolist(), which.tolist(), strict=True)) == expected
    ordered = keys.cpu().sort().values
    bins = empty(columns * rows, 2, dtype=torch.int32)
    kernels.get_tile_bin_edges_kernel(total, ordered.to("mps"), bins, threads=total)
    tiles = ordered >> 32
    for tile, (start, end) in enumerate(bins.tolist()):
        assert end - start == int((tiles == tile).sum())


def test_gaussians_on_a_screen() -> None:
    """OpenSplat: one gaussian in front of a background, pixel by pixel."""
    size = 16
    image, left, last = empty(size, size, 3), empty(size, size), empty(size, size, dtype=torch.int32)
    center, conic, color = torch.tensor([[7.0, 9.0]]), torch.tensor([[0.1, 0.02, 0.2]]), torch.tensor([[0.9, 0.5, 0.1]])
    background = torch.tensor([0.2, 0.3, 0.4])
    library(*SPLAT).nd_rasterize_forward_kernel(
        words(1, 1, 1, 0),
        words(size, size, 1, 0),
        3,
        words(0),
        words(0, 1),
        *on_mps(center, conic, color, torch.tensor([0.8])),
        left,
        last,
        image,
        background.to("mps"),
        words(16, 16),
        threads=(size, size),
        group_size=(16, 16),
    )
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    dx, dy = center[0, 0] - x, center[0, 1] - y
    alpha = 0.8 * torch.exp(-(0.5 * (0.1 * dx * dx + 0.2 * dy * dy) + 0.02 * dx * dy))
    alpha[alpha < 1 / 255] = 0
    torch.testing.assert_close(left.cpu(), 1 - alpha)
    torch.testing.assert_close(image.cpu(), alpha[..., None] * color + (1 - alpha)[..., None] * background)


def test_a_product_with_int4_weights() -> None:
    """torchao: templates with names, four rows a SIMD group, sums by shuffles."""
    kernels = library("pytorch/ao", f"{AO}/common.metal", f"{AO}/int4mm_opt.metal")
    m, k, n, group = 3, 256, 16, 32
    a, weight = torch.randn(m, k), torch.randint(0, 16, (n, k))
    scales, zeros = torch.rand(n, k // group), torch.randn(n, k // group)
    packed = (weight[:, ::2] | (weight[:, 1::2] << 4)).to(torch.uint8)
    out = empty(m, n)
    kernels.int4pack_mm_32_float(
        *on_mps(a, packed, scales, zeros), out, words(m, k, n, 0), threads=(n // 4 * 32, 1, m), group_size=(64, 1, 1)
    )
    spread = (weight.view(n, -1, group) * scales[..., None] + zeros[..., None]).view(n, k)
    torch.testing.assert_close(out.cpu(), a @ spread.T, rtol=1e-4, atol=1e-3)


def test_fills() -> None:
    """candle: kernels that macros write."""
    kernels = library(CANDLE[0], f"{CANDLE[1]}/fill.metal")
    for name, dtype in (("f32", torch.float32), ("i64", torch.int64), ("u8", torch.uint8)):
        out = empty(100, dtype=dtype)
        getattr(kernels, f"fill_{name}")(out, 7.0 if dtype.is_floating_point else 7, 90, threads=100)
        assert out.tolist() == [7] * 90 + [0] * 10


def test_layers_of_a_language_model() -> None:
    """calm: a norm over a whole group, half and 8-bit weights, one SIMD group for each row of a product."""
    kernels = library(*CALM)
    width, rows = 512, 24
    x, gain = torch.randn(width), torch.randn(width)
    scale = torch.tensor([1e-5]).view(torch.int32)
    out = empty(width)
    kernels.rmsnorm_float(words(width, int(scale), 0), out, *on_mps(x, gain), threads=1024, group_size=1024)
    torch.testing.assert_close(out.cpu(), torch.nn.functional.rms_norm(x, (width,), gain, 1e-5), rtol=1e-4, atol=1e-5)
    weight = torch.randn(rows, width).half()
    out = empty(rows)
    kernels.output_half(width, out, *on_mps(x, weight), threads=rows * 32, group_size=32)
    torch.testing.assert_close(out.cpu(), weight.float() @ x, rtol=1e-3, atol=1e-3)
    eighth = weight.to(torch.float8_e5m2)
    out = empty(rows)
    kernels.output_fp8(width, out, *on_mps(x.half(), eighth.view(torch.uint8)), threads=rows * 32, group_size=32)
    torch.testing.assert_close(out.cpu(), eighth.float() @ x.half().float(), rtol=1e-2, atol=1e-2)
    scores = torch.randn(2, 200)
    found = scores.to("mps")
    sizes = words(200, 150, 0, 0, 0, 0, 0, 0)
    kernels.attn_softmax(sizes, found, threads=2048, group_size=1024)
    seen = scores[:, :150]
    torch.testing.assert_close(found.cpu()[:, :150], torch.exp(seen - seen.amax(1, keepdim=True)))
