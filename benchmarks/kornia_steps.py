"""Steps of Kornia's own benchmark as tapes in `benchmarks/times/steps/`: filters, warps and augmentations.

    python benchmarks/kornia_steps.py                         # needs kornia at f0a06c7; prints calls of what is no step
    python benchmarks/kornia_steps.py _8_August ColorJiggle   # at 83725c6; what the names of these tapes end with

Kornia keeps the times of an M1 and an M4 in `benchmarks/results/0.9.0rc1`, the first of 8 August, the second of 18
August. In between `hsv_to_rgb` lost its gather, so `ColorJiggle` has a tape for each. All were timed with one wait
behind the call; waits that a function makes itself are on its tape. Pictures are 256 x 256, as there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import step_tapes
import torch
from step_recording import recorded

import anymps

FEW_STEPS = 12
BATCHES = (1, 32)
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


def main() -> None:
    """Write the tapes of steps, and print the calls of what is no step."""
    end, names = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    anymps.enable(mac="M4 32GB")
    for batch in BATCHES:
        torch.manual_seed(0)
        for name, function in operators(batch).items():
            if names and name not in names:
                continue
            step = recorded(function, FEW_STEPS, wait=True)
            waits = sum(one.waits for one in step)
            if name in ALONE:
                texts = [one.call.text for one in step if one.kind == "kernel" and one.call is not None]
                print(f"{name},{batch},{waits}," + " + ".join(texts))
                continue
            print(f"kornia-{name}{end}-b{batch}: {waits} waits", flush=True)
            step_tapes.write(f"kornia-{name}{end}-b{batch}", step)


if __name__ == "__main__":
    main()
