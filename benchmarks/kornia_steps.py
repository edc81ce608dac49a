"""Steps of Kornia's own benchmark as calls, in the words of `benchmarks/times/`: filters, warps and augmentations.

    python benchmarks/kornia_steps.py    # needs kornia 0.9; writes the tapes of times/steps/kornia-*, prints the others

Kornia keeps the times of an M1 and an M4 in `benchmarks/results/0.9.0rc1`. Each was timed with one wait behind the
call; waits that a function makes itself are printed with it. Pictures are 256 x 256, as there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import anymps
from anymps.forecast import forecast
from anymps.record import RoundKind

TAPES = Path(__file__).parent / "times" / "steps"
BATCHES = (1, 8, 32)
SIDE = 256


def operators(batch: int) -> dict[str, Callable[[], object]]:
    """Kornia's calls by their names, with the arguments of its benchmark."""
    import kornia.augmentation as augmentation
    import kornia.filters as filters
    import kornia.geometry as geometry

    pictures = torch.rand(batch, 3, SIDE, SIDE, device="mps")
    center = torch.full((batch, 2), SIDE / 2, device="mps")
    angle = torch.full((batch,), 30.0, device="mps")
    turn = geometry.get_rotation_matrix2d(center, angle, torch.ones(batch, 2, device="mps"))
    side = float(SIDE - 1)
    corners = torch.tensor([[[0.0, 0.0], [side, 0.0], [side, side], [0.0, side]]], device="mps").repeat(batch, 1, 1)
    moved = corners + torch.tensor([[[12.0, 8.0], [-10.0, 6.0], [-8.0, -12.0], [9.0, -7.0]]], device="mps")
    homography = geometry.get_perspective_transform(corners, moved)
    half = (SIDE // 2, SIDE // 2)
    random: dict[str, torch.nn.Module] = {
        "RandomHorizontalFlip": augmentation.RandomHorizontalFlip(p=1.0),
        "RandomAffine": augmentation.RandomAffine(degrees=30.0, translate=(0.1, 0.1), scale=(0.8, 1.2), p=1.0),
        "RandomPerspective": augmentation.RandomPerspective(0.5, p=1.0),
        "ColorJiggle": augmentation.ColorJiggle(0.2, 0.2, 0.2, 0.1, p=1.0),
        "RandomGaussianBlur": augmentation.RandomGaussianBlur((5, 5), (0.1, 2.0), p=1.0),
        "RandomBrightness": augmentation.RandomBrightness(brightness=(0.8, 1.2), p=1.0),
        "RandomGrayscale": augmentation.RandomGrayscale(p=1.0),
    }
    found: dict[str, Callable[[], object]] = {
        name: partial(module.to("mps"), pictures) for name, module in random.items()
    }
    return found | {
        "gaussian_blur2d": lambda: filters.gaussian_blur2d(pictures, (5, 5), (1.5, 1.5)),
        "sobel": lambda: filters.sobel(pictures),
        "laplacian": lambda: filters.laplacian(pictures, 5),
        "median_blur": lambda: filters.median_blur(pictures, (5, 5)),
        "box_blur": lambda: filters.box_blur(pictures, (5, 5)),
        "canny": lambda: filters.canny(pictures),
        "warp_perspective": lambda: geometry.warp_perspective(pictures, homography, (SIDE, SIDE)),
        "warp_affine": lambda: geometry.warp_affine(pictures, turn, (SIDE, SIDE)),
        "rotate": lambda: geometry.rotate(pictures, angle),
        "resize": lambda: geometry.resize(pictures, half, interpolation="bilinear"),
        "get_perspective_transform": lambda: geometry.get_perspective_transform(corners, moved),
    }


ALONE = ("RandomHorizontalFlip", "laplacian", "box_blur", "median_blur", "resize", "warp_affine", "warp_perspective")
"""Those whose time is mostly one kernel's: rows of `operators.csv`, not steps."""


def calls(function: Callable[[], object]) -> tuple[Counter[str], int]:
    """The calls of the third run, with how often each comes, and its waits with the one behind it."""
    for _ in range(2):
        function()
    with anymps.record() as capture:
        for _ in range(2):
            start = capture.core.clock_ns()
            function()
            torch.mps.synchronize()
            capture.core.note_round(int(RoundKind.CALLED), 0, start)
    happenings = forecast(capture.recording).happenings
    made = Counter(one.call.text for one in happenings if one.kind == "kernel" and one.call is not None)
    return made, sum(one.waits for one in happenings)


def main() -> None:
    """Write the tapes of steps, and print the calls of what is no step."""
    anymps.enable(mac="M4 32GB")
    for batch in BATCHES:
        torch.manual_seed(0)
        for name, function in operators(batch).items():
            made, waits = calls(function)
            if name in ALONE:
                print(f"{name},{batch},{waits}," + " + ".join(text for text in made.elements()))
                continue
            print(f"kornia-{name}-b{batch}: {waits} waits")
            lines = [f"{count} {text}\n" for text, count in made.most_common()]
            (TAPES / f"kornia-{name}-b{batch}.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
