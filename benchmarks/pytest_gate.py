"""What `pytest --mps` costs: the same suite on the CPU, on the device alone, and behind the gate, in interleaved runs.

    python benchmarks/pytest_gate.py [--rounds N] [--tests N] [--size D]

The suite is written for the purpose: parametrised tests of small modules, forward and backward, compared with
`torch.testing.assert_close`, as the suites of libraries are. Each contender is a process; what is timed is the tests
themselves, from the first setup to the last teardown, without imports and collection, in CPU time, which a busy machine
stretches less than the clock. A ratio is the median over rounds of two times of the same round. The plugin's own work
is the gate against the device alone, which a conftest switches on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGET = 1.05

SUITE = """
import os
import pytest, torch
from torch import nn

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
D = int(os.environ["BENCH_SIZE"])

@pytest.mark.parametrize("seed", range(int(os.environ["BENCH_TESTS"]) // 4))
@pytest.mark.parametrize("make", [
    lambda: nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)),
    lambda: nn.TransformerEncoderLayer(D, 4, 2 * D, batch_first=True, dropout=0.0),
    lambda: nn.Sequential(nn.Conv1d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=1)),
    lambda: nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.Softmax(-1)),
], ids=["mlp", "encoder", "conv", "norm"])
def test_module(make, seed):
    torch.manual_seed(seed)
    module = make().to(DEVICE)
    x = torch.randn(8, 16, D, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(3):
        loss = module(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() == loss.item()
    torch.testing.assert_close(module(x), module(x))
    assert x.grad.shape == x.shape
"""

CONFTEST = """
import os, time
import torch

torch.set_num_threads(1)
if os.environ["BENCH_CONTENDER"] == "device":
    import anymps
    anymps.enable()

first = None

def pytest_runtest_setup():
    global first
    first = first or time.process_time()

def pytest_sessionfinish():
    with open(os.environ["BENCH_RESULT"], "w") as file:
        file.write(str(time.process_time() - first))
"""


def timed(directory: Path, contender: str, tests: int, size: int) -> float:
    """One run of the suite, in seconds."""
    result = directory / "result"
    environment = {
        **os.environ,
        "BENCH_CONTENDER": contender,
        "BENCH_RESULT": str(result),
        "BENCH_TESTS": str(tests),
        "BENCH_SIZE": str(size),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "anymps.pytest_plugin",
    }
    flags = ["--mps"] if contender == "gate" else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags, str(directory / "test_suite.py")]
    answer = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise SystemExit(answer.stdout + answer.stderr)
    return float(result.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tests", type=int, default=400)
    parser.add_argument("--size", type=int, default=128, help="width of the modules")
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {"cpu": [], "device": [], "gate": []}
    with tempfile.TemporaryDirectory(prefix="anymps-bench-") as folder:
        directory = Path(folder)
        (directory / "test_suite.py").write_text(SUITE)
        (directory / "conftest.py").write_text(CONFTEST)
        for index in range(arguments.rounds + 1):
            for contender, measured in times.items():
                seconds = timed(directory, contender, arguments.tests, arguments.size)
                if index:  # the first round warms the caches
                    measured.append(seconds)

    def ratio(of: str, to: str) -> float:
        return statistics.median(a / b for a, b in zip(times[of], times[to], strict=True))

    per_test = statistics.median(times["cpu"]) / arguments.tests * 1e3
    print(f"{arguments.tests} tests of {per_test:.2f} ms on the CPU, {arguments.rounds} rounds")
    print(f"device / cpu   {ratio('device', 'cpu'):.3f}")
    print(f"gate / cpu     {ratio('gate', 'cpu'):.3f}")
    print(f"gate / device  {ratio('gate', 'device'):.3f}   (budget {BUDGET:.2f})")


if __name__ == "__main__":
    main()
