"""`anymps fix --cuda-as-mps` on public training scripts written for CUDA: the lines that change, and the last word."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from processes import clean_environment, run_command

pytestmark = pytest.mark.integration

VARIABLE = "ANYMPS_PUBLIC_TRAINING"
COMMITS = {
    "yunjey/pytorch-tutorial": "0500d3df5a2a8080ccfccbc00aca0eacc21818db",
    "eriklindernoren/PyTorch-GAN": "36d3c77e5ff20ebe0aeefd322326a134a279b93e",
}
TORCHVISION = {
    "__init__": "from . import datasets, transforms, utils",
    "datasets": """
import torch
class CIFAR10(torch.utils.data.Dataset):
    shape = (3, 32, 32)
    def __init__(self, root=None, train=True, transform=None, download=False):
        pass
    def __len__(self):
        return 200
    def __getitem__(self, i):
        return torch.rand(self.shape, generator=torch.Generator().manual_seed(i)), i % 10
class MNIST(CIFAR10):
    shape = (1, 28, 28)
""",
    "transforms": """
class ToTensor:
    def __init__(self, *given, **named):
        pass
Compose = Normalize = Resize = ToTensor
""",
    "utils": "def save_image(*given, **named):\n    pass",
}
"""What the scripts ask of torchvision, with small data of its own: nothing is downloaded."""

ONE_LINE = 'device = torch.device(torch.accelerator.current_accelerator(True) or "cpu")'
ALONE = "anymps: the changed script runs on mps without --cuda-as-mps"
NEEDS_CUDA = "anymps: without --cuda-as-mps the changed script stops: RuntimeError: Cannot initialize CUDA"


@pytest.mark.parametrize(
    ("repository", "file", "arguments", "added", "last"),
    [
        (
            "yunjey/pytorch-tutorial",
            "tutorials/01-basics/feedforward_neural_network/main.py",
            (),
            [ONE_LINE],
            ALONE,
        ),
        (
            "yunjey/pytorch-tutorial",
            "tutorials/02-intermediate/recurrent_neural_network/main.py",
            (),
            [
                ONE_LINE,
                "h0 = torch.zeros(self.num_layers, x.size(0), self.hidden_size, device=device)",
                "c0 = torch.zeros(self.num_layers, x.size(0), self.hidden_size, device=device)",
                "optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)",
            ],
            ALONE,
        ),
        (
            "yunjey/pytorch-tutorial",
            "tutorials/03-advanced/variational_autoencoder/main.py",
            (),
            [ONE_LINE, "optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)"],
            ALONE,
        ),
        (
            "eriklindernoren/PyTorch-GAN",
            "implementations/wgan/wgan.py",
            ("--n_epochs", "2"),
            [
                ONE_LINE,
                "cuda = True if torch.accelerator.is_available() else False",
                "generator.to(device)",
                "discriminator.to(device)",
            ],
            NEEDS_CUDA,
        ),
    ],
    ids=["feedforward", "recurrent", "autoencoder", "wgan"],
)
def test_the_lines_that_change(
    tmp_path: Path, repository: str, file: str, arguments: tuple[str, ...], added: list[str], last: str
) -> None:
    """In a copy of the script alone."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(
            f"{VARIABLE} names no folder of checkouts: git clone https://github.com/OWNER/NAME into OWNER/NAME there"
        )
    source = Path(folder, repository, file)
    if not source.is_file():
        pytest.skip(f"{source} is not there: git clone https://github.com/{repository}, commit {COMMITS[repository]}")
    library, work = tmp_path / "library" / "torchvision", tmp_path / "a" / "b" / "work"
    library.mkdir(parents=True)
    work.mkdir(parents=True)
    for name, text in TORCHVISION.items():
        (library / f"{name}.py").write_text(text)
    shutil.copy(source, work)
    paths = os.pathsep.join((str(library.parent), clean_environment()["PYTHONPATH"]))
    words = ("-m", "anymps", "fix", "--cuda-as-mps", "--mac", "M2 16GB", source.name, *arguments)
    result = run_command(*words, cwd=work, env={"PYTHONPATH": paths})
    assert result.status == 0, result.err
    lines = [line[1:].strip() for line in result.out.splitlines() if line.startswith("+") and line[:3] != "+++"]
    assert [line for line in lines if line] == added, result.out
    assert any(line.startswith(last) for line in result.err.splitlines()[-2:])
