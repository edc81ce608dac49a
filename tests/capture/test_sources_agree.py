"""One script, two sources: the device's kernels and an observer tell the same findings and sums."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from anymps.findings import RULES
from processes import MAC, run_python, run_with_torch

# Runs the named scripts, each recorded by itself, and prints what each recording says as one line of JSON.
RUN = """
import contextlib, gc, json, os, pathlib, re, sys
import torch, anymps
sys.path.insert(0, {tests!r})
import second_core, sources
anymps.enable({mac!r}, quiet=True)
told = {{}}
before = dict(os.environ)
peak = "SELECT COALESCE(MAX(allocated), 0) FROM allocations"
torch.use_deterministic_algorithms(False)  # imports half of torch, as the first script's end would
gc.collect()
gc.freeze()  # what is there already is no script's: else each script's collection walks it
for path in map(pathlib.Path, {paths!r}):
    torch.manual_seed(0)
    ended = ""
    gc.collect()  # the script before has left cycles
    older = torch.mps.current_allocated_memory()
    try:
        core = second_core.as_on_a_mac() if {second} else contextlib.nullcontext()
        with core, anymps.record(source={source!r}) as capture:
            exec(compile(path.read_text(), str(path), "exec"), {{"__name__": "__main__", "__file__": str(path)}})
    except Exception as error:
        text = re.sub("0x[0-9a-f]+", "0x", str(error))  # an object's address
        text = re.sub("#include <.*>", "", text)  # Inductor writes a set of them
        ended = f"{{type(error).__name__}}: {{text}}"
    recording = capture.recording
    told[path.stem] = {{
        "source": recording.meta["source"],
        "ended": ended,
        "tables": sources.tables_of(recording),
        "peak": recording._file._connection.execute(peak).fetchone()[0] - older,
    }}
    os.environ.clear()
    os.environ.update(before)  # what a script sets is its own
    torch.use_deterministic_algorithms(False)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
print("\\n" + json.dumps(told))
"""

TRAIN = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(10, 16), nn.ModuleList(Block() for _ in range(2))
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.convolution, self.norm, self.head = nn.Conv1d(16, 16, 3), nn.BatchNorm1d(16), nn.Linear(16, 10)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = {block}
        x = self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.norm(self.convolution(x.transpose(1, 2))).mean(-1))

net = Net().to("mps")
optimizer = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler("mps", enabled={scaled})
data = torch.utils.data.TensorDataset(torch.randint(0, 10, (24, 8)), torch.randint(0, 10, (24,)))
for tokens, labels in torch.utils.data.DataLoader(data, batch_size=8):
    tokens, labels = tokens.to("mps", non_blocking=True), labels.to("mps", non_blocking=True)
    with torch.autocast("mps", dtype=torch.float16, enabled={scaled}):
        loss = nn.functional.cross_entropy(net(tokens), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(loss.item())
"""

SCRIPTS = {
    "train": TRAIN.format(block="block(x)", scaled=False),
    "autocast and GradScaler": TRAIN.format(block="block(x)", scaled=True),
    "checkpoint": TRAIN.format(block="checkpoint(block, x, use_reentrant=False)", scaled=False),
    "checkpoint, reentrant": TRAIN.format(block="checkpoint(block, x, use_reentrant=True)", scaled=False),
    "LSTM": """
import torch
net = torch.nn.LSTM(8, 8, batch_first=True).to("mps")
net(torch.ones(2, 3, 8, device="mps"))[0].sum().backward()
with torch.inference_mode():
    print(net(torch.ones(2, 3, 8, device="mps"))[0][0, 0])
""",
    "waits": """
import threading
import torch
x = torch.ones(4, 4, device="mps")
start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
start.record()
y = x @ x
end.record()
end.synchronize()
torch.mps.synchronize()
torch.accelerator.synchronize()
torch.mps.empty_cache()
bool(x.any()), y.tolist(), x[x > 0], torch.unique(x), x.cpu().numpy(), f"{x.sum():.1f}"
thread = threading.Thread(target=lambda: (x + x).cpu())
thread.start()
thread.join()
host = torch.ones(4)
there = host.to("mps", non_blocking=True)
host.zero_()
there.sum().item()
""",
    "made of numbers": """
import torch
x = torch.arange(6.0, device="mps").view(2, 3)
for step in range(3):
    weights = torch.tensor([1.0, 2.0, 3.0], device="mps")
    picked = x[:, [-1, 0]]
    x[:, [0, 1]] = 3
    x[0] = 4
    x.new_tensor([1, 2]), torch.as_tensor([1, 2], device=x.device), torch.asarray([1, 2], device="mps")
    torch.tensor(x), torch.tensor([], device="mps"), torch.as_tensor(x, device="mps"), torch.tensor([1.0])
    torch.as_tensor(torch.ones(3).numpy(), device="mps"), torch.tensor(torch.ones(3).numpy(), device="mps")
with torch.inference_mode():
    torch.tensor([1, 2], device="mps") + 1
""",
    "refused": """
import torch
x = torch.ones(3, device="mps")
for attempt in (
    lambda: x + torch.ones(3),
    lambda: torch.zeros(3, dtype=torch.float64, device="mps"),
    lambda: torch.nn.functional.linear(x, torch.ones(2, 3)),
    lambda: torch.mm(x[None], torch.ones(3, 1)),
    lambda: torch.linalg.eig(torch.eye(2, device="mps")),
    lambda: x.view(2, 2),
    lambda: torch.empty(1 << 50, device="mps"),
    lambda: torch.rand(3, device="mps", generator=torch.Generator()),
):
    try:
        attempt()
    except Exception as error:
        print(type(error).__name__, error)
""",
    "anomaly detection": """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to("mps")
optimizer = torch.optim.SGD(net.parameters(), fused=True)
with torch.autograd.set_detect_anomaly(True):
    for step in range(4):
        loss = net(torch.ones(3, 4, device="mps")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
    "functions": """
import torch
x = torch.randn(5, 5, device="mps", requires_grad=True)
torch.linalg.svd(x)[1].sum().backward()
torch.func.vmap(lambda row: (row * 2).sum())(x.detach())
torch.func.grad(lambda a: (a ** 2).sum())(x.detach())
sparse = torch.eye(4, device="mps").to_sparse()
(sparse @ torch.ones(4, 2, device="mps")).sum().item()
sparse.coalesce()
""",
}

SAME_PEAK = ("train", "autocast and GradScaler", "checkpoint")
PEAK_TOLERANCE = 0.1
"""Of the native peak: what a kernel takes and gives back inside is in no sample of the observer."""


@dataclass(frozen=True)
class Told:
    """What the recording of one script says; `tables` are those of `sources.tables_of`."""

    source: str
    ended: str
    tables: dict[str, list[str]]
    peak: int


def record(
    source: str, paths: list[Path], mac: str = MAC, *, fallback: bool = False, fresh: bool = False
) -> dict[str, Told]:
    """Runs scripts one after the other in one process, a fork or a `fresh` one; by file name without `.py`."""
    code = RUN.format(
        mac=mac,
        source="native" if source == "native" else "observer",
        second=source == "as on a Mac",
        paths=[str(path) for path in paths],
        tests=str(Path(__file__).parents[1]),
    )
    with tempfile.TemporaryDirectory() as inductor:  # empty, as what Inductor compiles is work on the device, too
        environment = {"PYTORCH_ENABLE_MPS_FALLBACK": "1" if fallback else "0", "TORCHINDUCTOR_CACHE_DIR": inductor}
        answer = (run_python if fresh else run_with_torch)(code, environment)
    return {name: Told(**told) for name, told in json.loads(answer.lines[-1]).items()}


OTHERS = ("observer", "as on a Mac")
"""What is compared with the device's own recording: an observer, and one that does not own the device."""
EXEMPLIFIED = {
    identity: rule for identity, rule in RULES.items() if rule.example is not None and not rule.example.numbers
}
LATE = "MPS106_bad"
"""A bad index comes out at a wait: the device knows the call that left it and records that as refused, the observer has
recorded it as done by then."""
OF_LATE_ERRORS = ("calls", "waits", "fates", "memory")
OF_SHADERS = ("MPS682", "MPS683", "MPS836", *(f"MPS{number}" for number in range(851, 860)))
"""Their examples launch Metal kernels, which torch on a Mac does past the dispatcher: no observer sees that."""


def other_of(identity: str) -> str:
    """What is compared with the device's own recording of a rule's example."""
    return "observer" if identity in OF_SHADERS else "as on a Mac"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Told]]:
    """What the device and another source say of every half of every rule's example."""
    directory = tmp_path_factory.mktemp("examples")
    groups: dict[tuple[str, str, bool], list[Path]] = {}
    for rule in EXEMPLIFIED.values():
        assert rule.example is not None
        for half in ("bad", "good"):
            path = directory / f"{rule.id}_{half}.py"
            path.write_text(f"{rule.example.setup}\n{getattr(rule.example, half)}")
            groups.setdefault((other_of(rule.id), rule.example.mac, rule.example.fallback), []).append(path)
    found: dict[str, list[Told]] = {}
    for (other, mac, fallback), paths in groups.items():
        for source in ("native", other):
            for name, told in record(source, paths, mac, fallback=fallback, fresh=True).items():
                found.setdefault(name, []).append(told)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("identity", EXEMPLIFIED)
def test_the_examples_of_the_rules(examples: dict[str, list[Told]], identity: str) -> None:
    """The same findings at the same lines, as often, and the same calls, waits, fallbacks, refusals, steps, memory."""
    for name in (f"{identity}_bad", f"{identity}_good"):
        native, told = examples[name]
        assert (native.source, told.source) == ("native", "observer")
        assert told.ended == native.ended
        for table, rows in native.tables.items():
            if name != LATE or table not in OF_LATE_ERRORS:
                assert told.tables[table] == rows


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Told]]:
    """What both sources say of each of `SCRIPTS`; those that must be refused run without the fallback."""
    directory = tmp_path_factory.mktemp("scripts")
    paths = {name: directory / f"{name}.py" for name in SCRIPTS}
    for name, path in paths.items():
        path.write_text(SCRIPTS[name])
    refused = [paths.pop("refused")]
    return {
        source: record(source, refused) | record(source, list(paths.values()), fallback=True)
        for source in ("native", *OTHERS)
    }


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_whole_scripts(scripts: dict[str, dict[str, Told]], name: str, other: str) -> None:
    """Training with and without autocast and checkpoints, waits, refusals, fallbacks: the same in every table."""
    native, told = scripts["native"][name], scripts[other][name]
    assert told.ended == native.ended == ""
    assert told.tables == native.tables
    if name in SAME_PEAK:
        assert abs(told.peak - native.peak) <= PEAK_TOLERANCE * native.peak
