"""Public reports of what a release broke, each as a row of the table: the lines run here once, with one torch."""

from __future__ import annotations

import textwrap
import threading
from contextlib import suppress

import pytest
import torch
from torch.nn import functional as F

import anymps
from anymps.mac import parse_mac
from anymps.rules import parse_torch_version
from anymps.upgrade import make_grid

pytestmark = [pytest.mark.usefixtures("virtual_device"), pytest.mark.filterwarnings("ignore")]

MUL = "2.7 OK, 2.8 slower, 2.10 OK"  # products took slower kernels, whatever they are of
REPORTS: dict[int, tuple[str, str]] = {
    # pytorch's issue: its lines, and where the outcome changes from torch 2.7 on
    161640: (
        "F.linear(torch.rand(2, 8, device=device), torch.rand(12, 8, device=device)[::2])",
        "2.7 OK, 2.8 wrong, 2.9 OK",
    ),
    163597: (
        """
        q = torch.rand(2, 3, 4, 64, device=device).permute(0, 2, 1, 3)
        F.scaled_dot_product_attention(q, q, q)
        """,
        "2.7 OK, 2.8 wrong, 2.12 OK",
    ),
    174861: (
        """
        q = torch.rand(1, 32, 1, 128, dtype=torch.bfloat16, device=device)
        k = torch.rand(1, 2, 1024, 128, dtype=torch.bfloat16, device=device)
        F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
        """,
        "2.7 OK, 2.8 may fail, 2.11 OK",
    ),
    187117: ("torch.ones(3, device=device) + torch.tensor([0.0, 1.0, 2.0])[2]", "2.7 OK, 2.12 wrong, 2.14 OK"),
    191929: ("torch.full((2, 2), 4.0, device=device) * torch.tensor([9.0, 2.0])[1]", f"{MUL}, 2.12 wrong, 2.14 OK"),
    193057: ("torch.arange(8.0)[5] * torch.ones(2, device=device)", f"{MUL}, 2.12 wrong, 2.14 OK"),
    189495: (
        """
        x, bias = torch.rand(65537, 1, 1, device=device), torch.rand(2, device=device)
        F.linear(x, torch.rand(2, 1, device=device), bias)
        """,
        "2.7 OK, 2.12 wrong, 2.14 OK",
    ),
    190491: ("F.group_norm(torch.rand(2, 4, 64, device=device) + 4000, 2)", "2.7 slower, 2.13 wrong, 2.14 unknown"),
    195910: (
        """
        q = torch.rand(1, 4, 64, 64, dtype=torch.bfloat16, device=device)
        F.scaled_dot_product_attention(q, q, q, is_causal=True)
        """,
        "2.7 OK, 2.13 may fail, 2.15 unknown",
    ),
    180201: (
        "torch.rand(3, 3, device=device) @ torch.rand(1, 3, device=device).expand(3, 3)",
        "2.7 unknown, 2.11 wrong, 2.12 unknown",
    ),
    195937: ("torch.linalg.svd(torch.rand(911, 3, 3, device=device))", "2.7 falls back, 2.14 unknown"),
    197561: ("torch.accelerator.empty_host_cache()", "2.7 OK, 2.12 refused, 2.15 OK"),
    167238: (
        """
        x = torch.rand(3, 3, device=device)
        torch.linalg.lu_solve(*torch.linalg.lu_factor(x), x)
        """,
        "2.7 refused, 2.10 OK",
    ),
    167767: ("torch.zeros(2, device=device).clamp(1e-8)", "2.7 unknown, 2.9 may fail, 2.10 OK"),
    125098: (
        """
        x, grid = torch.rand(1, 1, 4, 4, device=device), torch.rand(1, 2, 2, 2, device=device)
        F.grid_sample(x, grid, padding_mode="border", align_corners=False)
        """,
        "2.7 refused, 2.11 OK",
    ),
    197805: (
        """
        def work():
            for _ in range(60):
                torch.rand(256, 256, device=device) @ torch.rand(256, 256, device=device)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
        "2.7 OK, 2.14 may fail",
    ),
}


@pytest.mark.parametrize("issue", REPORTS)
def test_a_public_report(issue: int) -> None:
    """Whatever torch is installed, its recording tells of the others. A bug that raises here is a cell all the same."""
    lines, expected = REPORTS[issue]
    names = {"torch": torch, "F": F, "threading": threading, "device": "mps"}
    if issue == 195937 and parse_torch_version(torch.__version__).release >= (2, 14):
        pytest.skip("this torch calls another operator, which the bug is about")
    with anymps.record() as capture, suppress(RuntimeError):  # in place of a crash
        exec(textwrap.dedent(lines), names)
    grid = make_grid(capture.recording, parse_mac("M3 Pro 18GB, macOS 15"))
    words = [(release, grid.at(release).outcome.word) for release in grid.releases]
    changes = [row for row, before in zip(words, [((0, 0), ""), *words], strict=False) if row[1] != before[1]]
    assert ", ".join(f"{major}.{minor} {word}" for (major, minor), word in changes) == expected


def test_a_batch_too_small_for_a_bug() -> None:
    """The size of an SVD that falls back tells that torch 2.14 can have nothing against its batch."""
    with anymps.record() as capture:
        torch.linalg.svd(torch.rand(2, 3, 3, device="mps"))
    assert make_grid(capture.recording, parse_mac("M3 Pro 18GB, macOS 15")).at((2, 14)).outcome.word == "OK"


def test_a_refused_argument_that_was_not_passed() -> None:
    """A volume sampled bilinearly: of nearest (up to 2.12) its call is known to have none, and bicubic never ran."""
    with anymps.record() as capture:
        grid = torch.rand(1, 2, 2, 2, 3, device="mps")
        F.grid_sample(torch.rand(1, 1, 4, 4, 4, device="mps"), grid, align_corners=False)
    table = make_grid(capture.recording, parse_mac("M3 Pro 18GB, macOS 15"))
    assert {table.at((2, minor)).outcome.word for minor in range(9, 16)} == {"OK"}
