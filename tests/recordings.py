"""Hand-made recordings that the tests of the reports show, and the rows of a recording's file."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from anymps.record import Direction, Fate, Flag, Phase, Recording, RecordingBuilder, RefusalKind, Wait

META: dict[str, object] = {
    "anymps_version": "0.1.0",
    "arguments": ["--epochs", "3"],
    "directory": "/home/me/project",
    "ending": {"status": 0},
    "environment": {"PYTORCH_ENABLE_MPS_FALLBACK": "1"},
    "fallback": True,
    "mac": "M3 Pro 18GB",
    "mac_details": "Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4: working set 13.32 GiB, largest buffer 9.99 GiB",
    "platform": "Linux x86_64",
    "python_version": "3.11.7",
    "script": "/home/me/project/train.py",
    "started": "2026-11-21T07:05:00+00:00",
    "torch_version": "2.13.0+cpu",
    "virtual": True,
}
SCRIPT, MODEL = "/home/me/project/train.py", "/home/me/project/nets/model.py"
LIBRARY = "/opt/python/lib/python3.11/site-packages/timm/layers/drop.py"
STEP = 12_300_000


def training(*, clean: bool = False, steps: int = 10, **meta: object) -> RecordingBuilder:
    """A training loop; unless `clean`, with a fallback in the model and an `.item()` in every step."""
    builder = RecordingBuilder(meta={**META, **meta})
    move = builder.site(SCRIPT, 31, "main", "    images, labels = images.to(device), labels.to(device)\n")
    conv = builder.site(MODEL, 18, "forward", "x = torch.relu(self.conv1(x))")
    step_function = builder.site(MODEL, 19, "forward", "x = x * torch.heaviside(x.detach(), self.zero)")
    drop = builder.site(LIBRARY, 88, "drop_path", "random_tensor.div_(keep_prob)")
    read = builder.site(SCRIPT, 36, "main", "running += loss.item()")
    block = builder.module("block.1", "Block")
    for step in range(steps):
        t = step * STEP
        builder.entry("anymps::batch", start_ns=t + 900_000, duration_ns=100_000, fate=Fate.MARK, phase=Phase.BATCH)
        for number, moved in enumerate((602_112, 512)):
            builder.entry(
                "aten::_copy_from", start_ns=t + 1_000_000 + number * 50_000, duration_ns=40_000, fate=Fate.COPY,
                phase=Phase.MOVE, site=move, wait=Wait.COPY_TO_MPS, direction=Direction.CPU_TO_MPS, moved_bytes=moved,
            )  # fmt: skip
        for number in range(100):
            builder.entry(
                "aten::view" if number % 4 == 0 else "aten::relu", start_ns=t + 1_200_000 + number * 30_000,
                duration_ns=25_000, phase=Phase.FORWARD, site=conv, flags=Flag.VIEW if number % 4 == 0 else None,
            )  # fmt: skip
        if not clean:
            builder.entry(
                "aten::heaviside.out", start_ns=t + 4_300_000, duration_ns=225_000, fate=Fate.FALLBACK,
                phase=Phase.FORWARD, module=block, site=step_function, wait=Wait.FALLBACK, moved_bytes=2_408_448,
            )  # fmt: skip
        builder.entry("aten::div_.Scalar", start_ns=t + 4_600_000, duration_ns=25_000, phase=Phase.FORWARD, site=drop)
        for number in range(200):
            time = t + 4_700_000 + number * 30_000
            builder.entry("aten::mm", start_ns=time, duration_ns=25_000, phase=Phase.BACKWARD)
        builder.entry("aten::_fused_adamw_", start_ns=t + 11_300_000, duration_ns=25_000, phase=Phase.OPTIMIZER)
        if not clean:
            builder.entry(
                "aten::_local_scalar_dense", start_ns=t + 12_200_000, duration_ns=25_000, phase=Phase.LOSS_READ,
                site=read, wait=Wait.ITEM, direction=Direction.MPS_TO_CPU, moved_bytes=4,
            )  # fmt: skip
        builder.end_step(t + STEP)
    return builder


def refusing(**meta: object) -> Recording:
    """A run that a float64 array ends before the first step."""
    message = "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
    ending = {"status": 1, "exception": "TypeError", "message": message}
    builder = training(steps=0, **{"ending": ending, "fallback": False, "environment": {}, **meta})
    builder.refusal(
        RefusalKind.FLOAT64, "TypeError", message, operator="aten::empty_strided", start_ns=0,
        site=builder.site(SCRIPT, 14, "<module>", "weights = weights.to(device)"),
        origin=builder.site(SCRIPT, 9, "<module>", "weights = torch.from_numpy(np.linspace(1, 2, CLASSES))"),
        detail={"name": "weights", "expression": "np.linspace(1, 2, CLASSES)", "numpy_default": True},
    )  # fmt: skip
    return builder.close()


def small(**meta: object) -> Recording:
    """Three steps of a few calls each: a fallback and a read in every step, memory samples, two threads."""
    builder = RecordingBuilder(meta={**META, "arguments": [], **meta})
    relu = builder.site(MODEL, 18, "forward", "x = torch.relu(self.conv1(x))")
    step_function = builder.site(MODEL, 19, "forward", "x = x * torch.heaviside(x.detach(), self.zero)")
    read = builder.site(SCRIPT, 36, "main", "running += loss.item()")
    block = builder.module("block.1", "Block")
    for step in range(3):
        t = step * 1_000_000
        builder.memory(t, 1 << 20, 8 << 20)
        builder.entry("anymps::batch", start_ns=t + 10_000, duration_ns=40_000, fate=Fate.MARK, phase=Phase.BATCH)
        builder.entry(
            "aten::relu", start_ns=t + 100_000, duration_ns=50_000, phase=Phase.FORWARD, site=relu, module=block,
            sequence=2 * step, inputs=["float32[2, 3]"], outputs=["float32[2, 3]"],
        )  # fmt: skip
        builder.entry(
            "aten::heaviside.out", start_ns=t + 200_000, duration_ns=100_000, fate=Fate.FALLBACK, phase=Phase.FORWARD,
            module=block, site=step_function, wait=Wait.FALLBACK, moved_bytes=4096,
        )  # fmt: skip
        builder.memory(t + 300_000, 3 << 20, 8 << 20)
        builder.entry(
            "aten::threshold_backward", start_ns=t + 400_000, duration_ns=200_000, phase=Phase.BACKWARD, site=relu,
            module=block, sequence=2 * step, thread=1, flags=Flag.AUTOGRAD_THREAD,
        )  # fmt: skip
        builder.entry("aten::_fused_adamw_", start_ns=t + 700_000, duration_ns=25_000, phase=Phase.OPTIMIZER)
        builder.entry(
            "aten::_local_scalar_dense", start_ns=t + 800_000, duration_ns=25_000, phase=Phase.LOSS_READ, site=read,
            wait=Wait.ITEM, direction=Direction.MPS_TO_CPU, moved_bytes=4,
        )  # fmt: skip
        builder.end_step(t + 1_000_000)
    return builder.close()


def hostile() -> Recording:
    """A script whose lines, names and messages look like markup and control sequences."""
    builder = training(clean=True, mac="[red]M3[/red]", script="a\x1b[2Jb.py")
    source = "print('[bold red]hi[/bold red]', ':smile:', '\x1b[31m', '\x07')\t# [link=x]"
    line = builder.site("[bold]x.py", 3, "[/]", source)
    builder.refusal(
        RefusalKind.DEVICE, "RuntimeError", "no [/bold] \x1b]0;title\x07 line\nbreak",
        operator="aten::[dim]mm", start_ns=0, site=line, detail={"name": "[u]x[/u]"},
    )  # fmt: skip
    return builder.close()


def rows(recording_path: Path, query: str) -> list[tuple[object, ...]]:
    """What anybody may ask the file itself."""
    with closing(sqlite3.connect(recording_path)) as connection, connection:
        return connection.execute(query).fetchall()


def bytes_of(recording: Recording) -> bytes:
    """The recording as a file; it is closed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        with recording, closing(sqlite3.connect(path)) as target:
            recording._file._connection.backup(target)
        return path.read_bytes()
