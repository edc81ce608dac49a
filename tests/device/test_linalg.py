"""FFT and linear algebra: values and gradients equal the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from device.compare import assert_same, needs_kernel, same, same_gradients, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

Z = torch.complex64
FFT: dict[str, Callable[[torch.Tensor], Any]] = {
    "fft": lambda x: torch.fft.fft(x),
    "fft options": lambda x: torch.fft.fft(x, n=6, dim=0, norm="ortho"),
    "ifft": lambda x: torch.fft.ifft(x),
    "rfft": lambda x: torch.fft.rfft(x.real if x.is_complex() else x),
    "irfft": lambda x: torch.fft.irfft(x, n=7),
    "hfft": lambda x: torch.fft.hfft(x, n=7),
    "fft2": lambda x: torch.fft.fft2(x),
    "ifft2": lambda x: torch.fft.ifft2(x, norm="forward"),
    "rfft2": lambda x: torch.fft.rfft2(x.real if x.is_complex() else x),
    "irfft2": lambda x: torch.fft.irfft2(x, s=(4, 6)),
    "fftn": lambda x: torch.fft.fftn(x),
    "fftshift": lambda x: torch.fft.fftshift(x),
    "round trip": lambda x: torch.fft.ifft(torch.fft.fft(x)),
}


@pytest.mark.parametrize("dtype", [torch.float32, Z], ids=str)
@pytest.mark.parametrize("name", list(FFT))
def test_transforms_equal_those_of_the_cpu(name: str, dtype: torch.dtype) -> None:
    """Every transform of real and complex input agrees, forward and backward."""
    same(FFT[name], values(4, 5, dtype=dtype), strides=False)
    same_gradients(FFT[name], values(4, 5, dtype=dtype))


def test_frequencies_and_spectrograms() -> None:
    """fftfreq, stft and istft agree."""
    assert_same(torch.fft.fftfreq(5, device="mps"), torch.fft.fftfreq(5))

    def cycle(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        window = torch.hann_window(16, device=x.device)
        s = torch.stft(x, 16, 4, window=window, return_complex=True)
        return s, torch.istft(s, 16, 4, window=window)

    same(cycle, values(2, 64), strides=False)


SQUARE = values(3, 4, 4) + 4 * torch.eye(4)
SPD = SQUARE @ SQUARE.mT
LINALG: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "mm": (torch.mm, (values(3, 4), values(4, 2))),
    "bmm": (torch.bmm, (values(2, 3, 4), values(2, 4, 2))),
    "matmul vectors": (torch.matmul, (values(4), values(4, seed=1))),
    "matmul broadcast": (torch.matmul, (values(2, 1, 3, 4), values(5, 4, 2))),
    "matmul vector": (torch.matmul, (values(3, 4), values(4))),
    "matmul transposed": (lambda a, b: a.mT @ b.mT, (values(4, 3), values(2, 4))),
    "addmm": (lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2), (values(3, 2), values(3, 4), values(4, 2))),
    "baddbmm": (torch.baddbmm, (values(2, 3, 2), values(2, 3, 4), values(2, 4, 2))),
    "addbmm": (torch.addbmm, (values(3, 2), values(2, 3, 4), values(2, 4, 2))),
    "addmv": (torch.addmv, (values(3), values(3, 4), values(4))),
    "addr": (torch.addr, (values(3, 4), values(3), values(4))),
    "mv": (torch.mv, (values(3, 4), values(4))),
    "dot": (torch.dot, (values(4), values(4, seed=1))),
    "outer": (torch.outer, (values(3), values(4))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (values(2, 3, 4), values(2, 5, 4))),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), (values(2, 3, 4), values(3, 4, 5))),
    "multi_dot": (lambda *m: torch.linalg.multi_dot(m), (values(2, 3), values(3, 4), values(4, 2))),
    "kron": (torch.kron, (values(2, 2), values(2, 3))),
    "cross": (torch.linalg.cross, (values(4, 3), values(4, 3, seed=1))),
    "chain": (lambda a: torch.linalg.matrix_power(a, 3), (SQUARE,)),
    "inv": (torch.linalg.inv, (SQUARE,)),
    "solve": (torch.linalg.solve, (SQUARE, values(3, 4, 2))),
    "solve_triangular": (
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
        (SQUARE, values(3, 4, 2)),
    ),
    "cholesky": (torch.linalg.cholesky, (SPD,)),
    "det": (torch.linalg.det, (SQUARE,)),
    "slogdet": (lambda a: torch.linalg.slogdet(a)[1], (SQUARE,)),
    "lu_factor": (lambda a: torch.linalg.lu_factor(a)[0], (SQUARE,)),
    "matrix_norm": (lambda a: (torch.linalg.matrix_norm(a), torch.linalg.matrix_norm(a, 1)), (SQUARE,)),
    "vector_norm": (lambda a: torch.linalg.vector_norm(a, dim=(1, 2)), (SQUARE,)),
    "trace": (lambda a: torch.trace(a[0]), (SQUARE,)),
    "vander": (torch.linalg.vander, (values(3),)),
    "cdist": (torch.cdist, (values(3, 4), values(2, 4))),
}


@pytest.mark.parametrize("name", list(LINALG))
def test_linear_algebra_equals_the_cpu(name: str) -> None:
    """Products and decompositions agree, forward and backward."""
    function, arguments = LINALG[name]
    same(function, *arguments, strides=False)
    if name == "cdist":
        needs_kernel("_cdist_backward")
    same_gradients(function, *arguments)


def test_qr_and_the_questions_about_rank() -> None:
    """inv_ex, cholesky_ex and lu report their info; qr agrees (kernel from torch 2.12)."""
    same(lambda a: torch.linalg.inv_ex(a), SQUARE, strides=False)
    same(lambda a: torch.linalg.cholesky_ex(a), SPD, strides=False)
    same(lambda a: torch.linalg.lu(a), SQUARE, strides=False)
    needs_kernel("linalg_qr.out")
    same(lambda a: torch.linalg.qr(a), values(4, 3), strides=False)


def test_singular_matrices_are_refused() -> None:
    """inv, solve and cholesky of matrices that have none raise LinAlgError as on the CPU."""
    for function in (torch.linalg.inv, torch.linalg.cholesky):
        with pytest.raises(torch.linalg.LinAlgError):
            function(-torch.ones(2, 2, device="mps"))
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.solve(torch.ones(2, 2, device="mps"), torch.ones(2, device="mps"))


@pytest.mark.filterwarnings("ignore:The operator 'aten..linalg_svd:UserWarning")
def test_singular_values() -> None:
    """svd works, up to torch 2.13 through a fallback that nobody asks for; what calls its inside is missing there."""
    x = values(4, 3)
    u, s, vh = torch.linalg.svd(x.to("mps"), full_matrices=False)
    assert_same(s, torch.linalg.svdvals(x))
    torch.testing.assert_close(((u * s) @ vh).cpu(), x, rtol=1e-4, atol=1e-5)
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14):
        same(torch.linalg.svdvals, x)
        same(torch.linalg.matrix_rank, x)
        return
    for call in (torch.linalg.svdvals, torch.linalg.matrix_rank, lambda a: torch.linalg.matrix_norm(a, 2)):
        text = text_of(NotImplementedError, call, x.to("mps"))
        assert text.startswith("The operator 'aten::_linalg_svd.U' is not currently implemented for the MPS device.")
