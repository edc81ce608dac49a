"""`anymps fix` on public scripts that were written for CUDA: a table with a row for each.

    python benchmarks/public_fixes.py CHECKOUTS [--only mnist] [--library FOLDER]

CHECKOUTS holds each repository at OWNER/NAME, at the commit that `CASES` names. The scripts run in copies, on small
data that is made here; torchvision is stood in for, so nothing is downloaded. What else they import (imageio,
configargparse, tensorboard, matplotlib, cv2, six) is taken from this environment or from FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TORCHVISION = {
    "__init__": "from . import datasets, models, transforms, utils",
    "datasets": """
import torch

class _Images(torch.utils.data.Dataset):
    shape, classes = (3, 32, 32), [str(i) for i in range(10)]
    def __init__(self, *given, transform=None, **named):
        size = getattr(transform, "size", None) or named.get("image_size", (0, 0))[1]
        self.shape = (self.shape[0], size, size) if size else self.shape
    def __len__(self):
        return 96
    def __getitem__(self, i):
        return torch.rand(self.shape, generator=torch.Generator().manual_seed(i)), i % 10

class CIFAR10(_Images): pass
class CIFAR100(_Images): pass
class ImageFolder(_Images): pass
class FakeData(_Images): pass
class LSUN(_Images): pass
class MNIST(_Images):
    shape = (1, 28, 28)
""",
    "transforms/__init__": """
class _Any:
    def __init__(self, *given, **named):
        self.given = given
    def __call__(self, x):
        return x

class _Sized(_Any):
    @property
    def size(self):
        return self.given[0] if isinstance(self.given[0], int) else self.given[0][0]

class ToTensor(_Any):
    def __call__(self, x):
        import numpy as np, torch
        x = np.asarray(x, dtype=np.float32) / 255
        return torch.from_numpy(x[None] if x.ndim == 2 else x.transpose(2, 0, 1))

class Compose(_Any):
    def __call__(self, x):
        for one in self.given[0]:
            x = one(x)
        return x
    @property
    def size(self):
        sizes = [one.size for one in self.given[0] if getattr(one, "size", None)]
        return sizes[-1] if sizes else None

class Resize(_Sized):
    def __call__(self, x):
        return x.resize((self.size, self.size)) if hasattr(x, "resize") else x

class CenterCrop(_Sized):
    def __call__(self, x):
        return x.crop((0, 0, self.size, self.size)) if hasattr(x, "crop") else x

class RandomCrop(_Sized): pass
class RandomResizedCrop(_Sized): pass
Normalize = RandomHorizontalFlip = RandomRotation = _Any
from . import functional
""",
    "transforms/functional": "",
    "utils": """
import torch

def save_image(*given, **named):
    pass

def make_grid(images, **named):
    return images[0]
""",
    "models": """
from torch import nn

__all__ = ["resnet18"]

def resnet18(pretrained=False, **named):
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(8, 1000))
""",
}


@dataclass(frozen=True)
class Case:
    """A script: the folder that is copied, from which it is started, and what `data` makes there."""

    kind: str
    repository: str
    commit: str
    script: str
    arguments: str = ""
    options: str = "--steps 3"
    data: Callable[[Path], None] | None = None
    package: str = ""
    """The folder of the repository that the script is in and imports as a package."""


def _words(folder: Path) -> None:
    for name in ("train", "valid", "test"):
        text = "\n".join(" ".join(f"w{(i * 7 + j * j) % 50}" for j in range(20)) for i in range(120))
        for place in (folder / "data" / "penn", folder / "data" / "wikitext-2"):
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{name}.txt").write_text(text + "\n")


def _pictures(*folders: str, mode: str = "RGB", size: int = 64, last: str = "png") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import numpy
        from PIL import Image

        random = numpy.random.default_rng(0)
        for name in folders:
            (folder / name).mkdir(parents=True, exist_ok=True)
            for number in range(16):
                values = random.integers(0, 2 if mode == "L" else 256, (size, size, len(mode))).astype("uint8")
                Image.fromarray(values[..., 0] if mode == "L" else values, mode).save(
                    folder / name / f"{number}.{last}"
                )

    return make


def _scene(folder: Path) -> None:
    _pictures("data/lego", mode="RGBA", size=32)(folder)
    turned = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 4.0], [0, 0, 0, 1.0]]
    frames = [{"file_path": f"./{number}", "transform_matrix": turned} for number in range(16)]
    for name in ("train", "val", "test"):
        (folder / "data" / "lego" / f"transforms_{name}.json").write_text(
            json.dumps({"camera_angle_x": 0.7, "frames": frames})
        )


def _segmented(folder: Path) -> None:
    _pictures("data/imgs")(folder)
    _pictures("data/masks", mode="L")(folder)
    (folder / "wandb.py").write_text(
        "class _Run:\n    config = type('C', (), {'update': lambda *a, **k: None})()\n"
        "    def log(self, *a, **k): pass\n\ndef init(*a, **k): return _Run()\n\n"
        "def Histogram(*a): return None\n\ndef Image(*a): return None\n"
    )


def _cora(folder: Path) -> None:
    place = folder / "data" / "cora"
    place.mkdir(parents=True, exist_ok=True)
    nodes = 1500  # as many as the script's own indices name
    lines = [f"{i} {' '.join(str(int((i + j) % 7 == 0)) for j in range(50))} c{i % 7}" for i in range(nodes)]
    (place / "cora.content").write_text("\n".join(lines) + "\n")
    (place / "cora.cites").write_text("".join(f"{i} {(i * 13 + 1) % nodes}\n" for i in range(nodes)))


def _one_at_a_time(folder: Path) -> None:
    script = folder / "ddpm.py"
    script.write_text(script.read_text().replace("args.batch_size = 12", "args.batch_size = 1"))


EXAMPLES, OF = "pytorch/examples", "0f0c913"
NERF = (
    "--expname x --basedir logs --datadir data/lego --dataset_type blender --no_batching --use_viewdirs --white_bkgd "
    "--N_samples 8 --N_importance 8 --N_rand 64 --netwidth 32 --netwidth_fine 32 --netdepth 4 --netdepth_fine 4"
)
CASES = {
    "nerf": Case("radiance field", "yenchenlin/nerf-pytorch", "63a5a63", "run_nerf.py", NERF, data=_scene),
    "awd-lstm": Case(
        "recurrent language model",
        "salesforce/awd-lstm-lm",
        "1d466ec",
        "main.py",
        "--epochs 1 --emsize 32 --nhid 32 --batch_size 4 --bptt 10 --save x.pt --log-interval 2",
        data=_words,
    ),
    "ddpm": Case(
        "diffusion",
        "dome272/Diffusion-Models-pytorch",
        "be35220",
        "ddpm.py",
        options="--steps 1",
        data=_one_at_a_time,
    ),
    "cifar100": Case("classifier", "weiaicunzai/pytorch-cifar100", "11d8418", "train.py", "-net squeezenet -gpu -b 16"),
    "mnist": Case("first example", EXAMPLES, OF, "mnist/main.py", "--epochs 1 --batch-size 16"),
    "dcgan": Case(
        "GAN",
        EXAMPLES,
        OF,
        "dcgan/main.py",
        "--dataset fake --cuda --niter 1 --batchSize 8 --ngf 8 --ndf 8 --workers 0",
    ),
    "vae": Case("autoencoder", EXAMPLES, OF, "vae/main.py", "--epochs 1 --batch-size 16"),
    "super-resolution": Case(
        "super-resolution",
        EXAMPLES,
        OF,
        "super_resolution/main.py",
        "--upscale_factor 2 --nEpochs 1 --batchSize 4 --cuda --threads 0",
        data=_pictures("dataset/BSDS300/images/train", "dataset/BSDS300/images/test", last="jpg"),
    ),
    "transformer": Case(
        "transformer language model",
        EXAMPLES,
        OF,
        "word_language_model/main.py",
        "--cuda --model Transformer --emsize 16 --nhid 16 --nhead 2 --epochs 1 --batch_size 4 --bptt 10",
        data=_words,
    ),
    "imagenet": Case(
        "classifier on several GPUs", EXAMPLES, OF, "imagenet/main.py", ". -a resnet18 --gpu 0 -b 8 -j 0 --epochs 1"
    ),
    "unet": Case(
        "segmentation",
        "milesial/Pytorch-UNet",
        "21d7850",
        "train.py",
        "--epochs 1 --batch-size 2 --scale 0.25",
        data=_segmented,
    ),
    "gcn": Case(
        "graph network", "tkipf/pygcn", "1600b5b", "pygcn/train.py", "--epochs 4", "", data=_cora, package="pygcn"
    ),
}


def main() -> None:
    """Run the cases and print their rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", action="append", choices=sorted(CASES))
    parser.add_argument("--library", type=Path)
    given = parser.parse_args()
    print("| script | kind | changed | not changed | time: all runs, one run |")
    print("| --- | --- | --- | --- | --- |")
    for name in given.only or CASES:
        print(row(name, given.checkouts, given.library), flush=True)


def row(name: str, checkouts: Path, library: Path | None) -> str:
    """One row of the table; what `anymps fix` printed goes to stderr."""
    case = CASES[name]
    source = checkouts / case.repository
    if not source.is_dir():
        return f"| {case.repository} | {case.kind} | not there: git clone https://github.com/{case.repository} | | |"
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as temporary:
        work, stubs = Path(temporary, "work"), Path(temporary, "stubs")
        script = Path(case.script)
        shutil.copytree(source / (script.parent if not case.package else ""), work)
        if case.data is not None:
            case.data(work)
        for module, text in TORCHVISION.items():
            path = stubs / "torchvision" / f"{module}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        paths = [str(stubs), str(work), *([str(library)] if library else []), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        words = [*case.options.split(), script.name, *case.arguments.split()]
        command = [sys.executable, "-m", "anymps", "fix", "--cuda-as-mps", "--mac", "M2 16GB", *words]
        began = time.monotonic()
        answer = subprocess.run(
            command, cwd=work / case.package, env=environment, capture_output=True, text=True, check=False
        )
        took = time.monotonic() - began
    print(f"=== {name}: {took:.0f} s\n{answer.stdout}\n{answer.stderr}", file=sys.stderr, flush=True)
    return _row(case, answer.returncode, answer.stderr)


def _row(case: Case, status: int, errors: str) -> str:
    lines = errors.splitlines()
    if status:
        return f"| {case.repository}, `{case.script}` | {case.kind} | {lines[-1] if lines else status} | | |"
    made = next((line for line in lines if re.match(r"anymps: \d+ changes?: ", line)), "")
    times = next((line for line in lines if line.startswith("anymps: all runs took")), "")
    time_of = ", ".join(re.findall(r"[\d.]+ (?:ms|s)", times))
    left = "; ".join(dict.fromkeys(_left(lines)))
    changed = made.removeprefix("anymps: ") or "none"
    return f"| {case.repository}, `{case.script}` | {case.kind} | {changed} | {left or 'nothing'} | {time_of} |"


def _left(lines: list[str]) -> Iterator[str]:
    for line in lines:
        found = re.match(r"  (MPS\d+)  (\S+)  not changed: (.*)", line)
        if found:
            yield f"{found[1]} {found[2]}: {found[3]}"


if __name__ == "__main__":
    main()
