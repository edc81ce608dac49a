"""Singular matrices and values; tests/conformance has what other operators of linear algebra compute."""

from __future__ import annotations

import pytest
import torch

from device.compare import assert_same, same, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")


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
