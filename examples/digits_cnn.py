"""Read handwritten digits, 8 by 8 pixels, with a small convolutional network fed by a DataLoader.

    anymps run --mac "M3 Pro 18GB" examples/digits_cnn.py

Good practice on MPS shown here: NumPy's float64 ends on the host, every batch has the same shape and crosses to the
device once, the loss is summed on the device and read once an epoch, evaluation counts on the device and reads once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits  # pip install scikit-learn
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SEED = 0
HELD_OUT = 360  # images of the 1797 that training never sees
CHANNELS = 16  # feature maps of the first convolution; the second has twice as many
CLASSES = 10  # digits
BATCH = 60  # images a step
EPOCHS = 15  # passes over the training images
LEARNING_RATE = 2e-3  # AdamW's step size


def devices() -> list[str]:
    """Name the devices of this machine, best first."""
    there = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available(), "cpu": True}
    return [name for name, available in there.items() if available]


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Training and held-out images, [n, 1, 8, 8] float32 from 0 to 1, with digits, [n] int64; all of it on the host."""
    digits = load_digits()
    # scikit-learn gives float64 (NumPy's default), which MPS does not have: convert before anything meets the device.
    images = torch.from_numpy(digits.images).to(torch.float32).unsqueeze(1) / 16  # pixels count from 0 to 16
    targets = torch.from_numpy(digits.target).to(torch.int64)  # NumPy's default integer is narrower on some systems
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    images, targets = images[order], targets[order]
    return (
        TensorDataset(images[HELD_OUT:], targets[HELD_OUT:]),
        TensorDataset(images[:HELD_OUT], targets[:HELD_OUT]),
    )


class Net(nn.Module):
    """Two convolutions, each followed by ReLU and pooling, then one linear layer: [n, 1, 8, 8] -> [n, 10] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(1, CHANNELS, kernel_size=3, padding=1)
        self.conv_2 = nn.Conv2d(CHANNELS, 2 * CHANNELS, kernel_size=3, padding=1)
        self.head = nn.Linear(2 * CHANNELS * 2 * 2, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv_1(images)), 2)  # [n, 16, 4, 4]
        x = F.max_pool2d(F.relu(self.conv_2(x)), 2)  # [n, 32, 2, 2]
        logits: torch.Tensor = self.head(x.flatten(1))
        return logits


def accuracy(model: Net, loader: DataLoader[tuple[torch.Tensor, ...]], device: torch.device) -> float:
    """Share of the loader's images that the model reads right; counts on the device, waits for it once."""
    right = torch.zeros((), dtype=torch.int64, device=device)
    seen = 0  # images; known on the host, so it needs no tensor
    model.eval()
    with torch.no_grad():
        for images, targets in loader:
            images, targets = images.to(device), targets.to(device)
            right += (model(images).argmax(dim=1) == targets).sum()
            seen += len(targets)
    return right.item() / seen


def main(argv: Sequence[str] | None = None) -> int:
    """Train, then print the held-out accuracy beside that of always naming the most frequent digit."""
    parser = argparse.ArgumentParser(description="Read handwritten digits.")
    parser.add_argument("--device", choices=devices(), default=devices()[0])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    torch.manual_seed(SEED)

    training, held_out = load_data()
    # No workers: the images are in memory, and macOS starts workers by spawn, so each would import torch anew.
    # No pin_memory: for MPS the DataLoader warns and leaves it off (torch 2.13, torch/utils/data/dataloader.py).
    # drop_last: a smaller last batch would be a second shape, and MPS keeps a graph a shape (pytorch issue 164299).
    batches = DataLoader(training, BATCH, shuffle=True, drop_last=True, num_workers=0)
    checks = DataLoader(held_out, BATCH, num_workers=0)
    model = Net().to(device)  # weights are drawn on the host: the same start on every device
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    print(f"{device}: {len(training)} training images, {len(held_out)} held out")

    for epoch in range(1, options.epochs + 1):
        model.train()
        running = torch.zeros((), device=device)  # sum of the losses of this epoch
        for images, targets in batches:
            images, targets = images.to(device), targets.to(device)
            loss = F.cross_entropy(model(images), targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.detach()
        print(f"epoch {epoch:2d}  training loss {running.item() / len(batches):.3f}")

    most_frequent = training.tensors[1].bincount().argmax()  # on the host, like the targets it is compared with
    baseline = (held_out.tensors[1] == most_frequent).float().mean().item()
    print(f"held-out accuracy {accuracy(model, checks, device):.3f}, always the most frequent digit {baseline:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
