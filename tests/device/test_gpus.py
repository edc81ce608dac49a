"""The NVIDIA GPU of a process: which it is, and in one line why there is none; a made-up driver answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anymps import EnableError
from anymps.device import _gpus
from anymps.device._gpus import Driver, Gpu, Gpus, ask_driver, gpu_of, rank_here, take_gpu, too_small
from processes import run_command

GIB = 1 << 30
H100 = Gpu(0, "NVIDIA H100 80GB HBM3", 80 * GIB, (9, 0))
FOUND = Gpus("2.11.0+cu130", "13.0", ("sm_75", "sm_80", "sm_90"), Driver((13, 0), (H100,)))
RANKS = (
    *("LOCAL_RANK", "RANK", "PYTEST_XDIST_WORKER", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
    *(_gpus.RANK_VARIABLE, _gpus.GPUS_VARIABLE),
)

Answer = Callable[[Gpus], None]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Says what the machine has; the process is no rank."""
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)
    return lambda found: monkeypatch.setattr(_gpus, "look_for_gpus", lambda: found)


def driver(**changes: object) -> Gpus:
    """The machine with another driver."""
    assert FOUND.driver is not None
    return replace(FOUND, driver=replace(FOUND.driver, **changes))


NONE_TO_BE_HAD = [
    pytest.param(
        replace(FOUND, torch="2.13.0+cpu", torch_cuda=None, driver=None),
        "anymps: the cuda substrate needs a torch that is built for CUDA, and 2.13.0+cpu is not: install that build "
        "(pytorch.org/get-started), or use the host substrate",
        id="torch without CUDA",
    ),
    pytest.param(
        replace(FOUND, driver=None),
        "anymps: the cuda substrate needs NVIDIA's driver, and libcuda.so.1 cannot be loaded: install the driver, or "
        "start the container with its GPUs (docker run --gpus all)",
        id="no driver",
    ),
    pytest.param(
        driver(cuda=(12, 4)),
        "anymps: NVIDIA's driver is too old, as it serves CUDA 12.4, and torch 2.11.0+cu130 is built for 13.0: update "
        "the driver, or install a torch for CUDA 12",
        id="old driver",
    ),
    pytest.param(
        driver(gpus=(), error="error 803, system has unsupported display driver / cuda driver combination"),
        "anymps: NVIDIA's driver reports no GPU (error 803, system has unsupported display driver / cuda driver "
        "combination): run nvidia-smi, which asks the same driver",
        id="driver fails",
    ),
    pytest.param(
        driver(gpus=()),
        "anymps: the cuda substrate needs an NVIDIA GPU, and this machine has none: use the host substrate",
        id="no gpu",
    ),
    pytest.param(
        replace(driver(gpus=()), visible=""),
        "anymps: the cuda substrate needs an NVIDIA GPU, and CUDA_VISIBLE_DEVICES='' shows none: unset it, or name a "
        "GPU by its number",
        id="hidden gpus",
    ),
    pytest.param(
        driver(gpus=(replace(H100, name="Tesla V100", capability=(7, 0)),)),
        "anymps: torch 2.11.0+cu130 has no kernels for GPU 0 (Tesla V100), which has compute capability 7.0: "
        "install a torch that has them (this one has those for sm_75, sm_80, sm_90), or choose another GPU with "
        "CUDA_VISIBLE_DEVICES",
        id="old gpu",
    ),
]


@pytest.mark.parametrize(("found", "text"), NONE_TO_BE_HAD)
def test_no_gpu_can_be_had(answer: Answer, found: Gpus, text: str) -> None:
    """One line each says why, and what to do."""
    answer(found)
    with pytest.raises(EnableError) as raised:
        take_gpu()
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("architectures", "capability", "served"),
    [
        (("sm_80",), (8, 6), True),  # a newer GPU of the same generation
        (("sm_86",), (8, 0), False),
        (("sm_80",), (9, 0), False),
        (("sm_80", "compute_80"), (9, 0), True),  # the driver translates
        (("sm_90a",), (9, 0), True),
        (("sm_100",), (10, 0), True),
        (("sm_120", "compute_120"), (10, 0), False),
        ((), (9, 0), True),  # a build that tells nothing
    ],
)
def test_kernels_for_a_gpu(
    answer: Answer, architectures: tuple[str, ...], capability: tuple[int, int], served: bool
) -> None:
    """A build has kernels for GPUs of its own generations, and for newer ones where the driver can translate."""
    answer(replace(driver(gpus=(replace(H100, capability=capability),)), architectures=architectures))
    if served:
        assert take_gpu().capability == capability
    else:
        with pytest.raises(EnableError, match="has no kernels for GPU 0"):
            take_gpu()


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, 0),
        ({"LOCAL_RANK": "3", "RANK": "11"}, 3),
        ({"PYTEST_XDIST_WORKER": "gw12"}, 12),
        ({"PYTEST_XDIST_WORKER": "master"}, 0),
        ({"LOCAL_RANK": "1", "PYTEST_XDIST_WORKER": "gw5"}, 1),  # torchrun, in a test
        ({_gpus.RANK_VARIABLE: "2", "SLURM_LOCALID": "0"}, 2),  # mp.spawn, in a job
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "6", "RANK": "14"}, 6),
        ({"SLURM_LOCALID": "4"}, 4),
        ({"RANK": "5"}, 5),
    ],
)
def test_the_number_of_a_process(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int
) -> None:
    """As its launcher says it; torchrun before pytest-xdist, that before the parent's."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_here() == rank


@pytest.mark.parametrize(
    ("there", "made_up", "gpus"),
    [
        (8, "", [0, 1, 2, 3, 4, 5, 6, 7]),
        (1, "", [0] * 8),
        (3, "", [0, 1, 2, 0, 1, 2, 0, 1]),
        (8, "2", [0, 1, 0, 1, 0, 1, 0, 1]),  # only the first two
        (2, "8", [0, 1, 0, 1, 0, 1, 0, 1]),  # more than there are
    ],
)
def test_eight_ranks(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, there: int, made_up: str, gpus: list[int]
) -> None:
    """Each takes GPU `rank % GPUs`; `ANYMPS_GPUS` is another number of GPUs."""
    monkeypatch.setenv(_gpus.GPUS_VARIABLE, made_up)
    assert [gpu_of(rank, there) for rank in range(8)] == gpus
    answer(driver(gpus=tuple(replace(H100, number=number) for number in range(there))))
    taken = []
    for rank in range(8):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        taken.append(take_gpu().number)
    assert taken == gpus


@pytest.mark.parametrize("text", ["0", "-1", "two"])
def test_a_wrong_number_of_gpus(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """One line."""
    monkeypatch.setenv(_gpus.GPUS_VARIABLE, text)
    with pytest.raises(EnableError) as raised:
        gpu_of(0, 1)
    assert str(raised.value) == f"anymps: ANYMPS_GPUS='{text}' must be a number of GPUs, 1 or more"


def test_a_gpu_smaller_than_the_mac() -> None:
    """It is said beforehand."""
    assert too_small(H100, 12 * GIB) == ""
    assert too_small(replace(H100, total=16 * GIB), 48 * GIB) == (
        "GPU 0 (NVIDIA H100 80GB HBM3) has 16.0 GiB, the Mac's GPU may use 48.0 GiB: if the GPU is full before "
        "the Mac is, the error says so"
    )


class FakeCuda:
    """libcuda with two GPUs, the second a part of one."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 13020
        return 0

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = b"unknown error"
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, gpu: Any, number: int) -> int:
        gpu._obj.value = 10 + number
        return 0

    def cuDeviceGetName(self, name: Any, length: int, gpu: Any) -> int:
        name.value = b"NVIDIA H100 80GB HBM3" + b" MIG 1g.10gb" * (gpu.value - 10)
        return 0

    def cuDeviceTotalMem_v2(self, total: Any, gpu: Any) -> int:
        total._obj.value = (80, 10)[gpu.value - 10] * GIB
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, gpu: Any) -> int:
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0


def installed(monkeypatch: pytest.MonkeyPatch, cuda: object = None) -> None:
    """This library can be loaded, and no other."""

    def load(name: str) -> object:
        if cuda is None or name != "libcuda.so.1":
            raise OSError(f"{name}: cannot open shared object file")
        return cuda

    monkeypatch.setattr(_gpus.ctypes, "CDLL", load)


def test_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version, and each GPU with its memory."""
    installed(monkeypatch, FakeCuda())
    part = Gpu(1, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB, (9, 0))
    assert ask_driver() == Driver((13, 2), (H100, part))


def test_a_driver_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is no error; anything else is told in the driver's words."""
    installed(monkeypatch, FakeCuda(100))
    assert ask_driver() == Driver((13, 2))
    installed(monkeypatch, FakeCuda(999))
    assert ask_driver() == Driver((13, 2), error="error 999, unknown error")
    installed(monkeypatch)
    assert ask_driver() is None


ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the plugin is named, where it is installed as well


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (("-m", "anymps", "run", "--substrate", "cuda", "train.py"), {}),
        (("-m", "anymps", "bench", "--substrate", "cuda", "train.py"), {}),
        (("-m", "anymps", "run", "train.py"), {"ANYMPS_SUBSTRATE": "cuda"}),
        (("-c", "import anymps\nanymps.enable(substrate='cuda')"), {}),
        (("-m", "pytest", "-p", "anymps.pytest_plugin", "--mps", "--mps-substrate", "cuda"), ALONE),
        (("-m", "anymps", "fix", "--substrate", "cuda", "train.py"), {}),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: tuple[str, ...], environment: dict[str, str]) -> None:
    """A command ends with 2, before it builds anything or runs the script."""
    import torch

    if torch.version.cuda is not None:
        pytest.skip("this torch is built for CUDA")
    (tmp_path / "train.py").write_text("print('ran')\n")
    ended = run_command(*words, cwd=tmp_path, env=environment)
    assert ended.out == ""
    (line,) = (line for line in ended.err.splitlines() if "the cuda substrate" in line)
    assert line.partition("the cuda substrate")[2] == (
        f" needs a torch that is built for CUDA, and {torch.__version__} is not: install that build "
        "(pytorch.org/get-started), or use the host substrate"
    )
    if words[1] == "anymps":
        assert ended.status == 2
        assert ended.err.splitlines()[-1] == line
    else:
        assert ended.status == (4 if "pytest" in words else 1)


@pytest.mark.parametrize("text", ["gpu", "shape"])
def test_a_wrong_variable(text: str) -> None:
    """`ANYMPS_SUBSTRATE` is host or cuda; shapes alone are for plans."""
    ended = run_command("-m", "anymps", "run", "train.py", env={"ANYMPS_SUBSTRATE": text})
    assert ended.status == 2


SPAWNED = """
import os, sys
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return os.environ.get("ANYMPS_GPU_RANK", "none")

def loaded():
    return "+".join(sorted(set(sum(DataLoader(Numbers(), num_workers=2), []))))

def rank(number):
    sys.stdout.write(f"{number} {os.environ['ANYMPS_GPU_RANK']} {loaded()}\\n")
    sys.stdout.flush()

if __name__ == "__main__":
    print("main", os.environ.get("ANYMPS_GPU_RANK", "none"), loaded(), flush=True)
    mp.spawn(rank, nprocs=3)
"""


@pytest.mark.slow
def test_processes_that_multiprocessing_starts(tmp_path: Path) -> None:
    """Ranks of `mp.spawn` are told apart. A DataLoader's workers have the number of the process that reads them."""
    script = tmp_path / "spawned.py"
    script.write_text("import anymps\nanymps.enable(quiet=True)\n" + SPAWNED)
    told = run_command(str(script), cwd=tmp_path).lines
    assert told[0] == "main none none"
    numbers = sorted(line.split()[1:] for line in told[1:])
    assert len({number for number, _ in numbers}) == 3
    assert all(number == of_workers for number, of_workers in numbers)
    first = int(numbers[0][0])
    assert [int(number) for number, _ in numbers] == [first, first + 1, first + 2]


def test_the_known_differences_of_a_gpu_are_of_tests_that_exist() -> None:
    """tests/gpu.sh tells what else fails from tests/gpu/device_differs.txt, where each test has a line."""
    tests = Path(__file__).parents[1]
    lines = (tests / "gpu" / "device_differs.txt").read_text(encoding="utf-8").splitlines()
    named = [line.partition("[")[0].split("::") for line in lines if line and not line.startswith("#")]
    assert len(named) > 20
    gone = [name for file, name in named if f"def {name}(" not in (tests.parent / file).read_text(encoding="utf-8")]
    assert gone == []
