"""Names of devices that mean the CPU: in factories, moves, modules, autocast, generators and loading."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import io
import torch
from anymps.compare.inside._names import rename_devices

rename_devices(("mps", "cuda"), "cpu")
device = torch.device("mps")
module = torch.nn.Linear(2, 2).to("mps").to(device).cuda()
made = [
    torch.ones(2, device="mps"), torch.randn(2, device=device), torch.ones(2).to("cuda:0"), torch.ones(2).to(device),
    torch.ones(2).cuda(), torch.ones(2).new_zeros(2, device="mps"), module.weight, torch.ones(2).to(device="mps"),
    torch.rand(2, device=device, generator=torch.Generator(device="mps").manual_seed(1)),
]
file = io.BytesIO()
torch.save(made[0], file)
file.seek(0)
made.append(torch.load(file, map_location="mps"))
torch.set_default_device("mps")
made.append(torch.zeros(2))
print({it.device.type for it in made})
with torch.autocast("mps", dtype=torch.bfloat16):
    print((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
print(isinstance(torch.Generator(), torch.Generator), isinstance(3, torch.Generator))
torch.mps.synchronize()
torch.cuda.empty_cache()
print(torch.einsum("mps,s->mp", torch.ones(1, 1, 1), torch.ones(1)).shape)
print(torch.mps.current_allocated_memory())
"""

EXPECTED = """\
{'cpu'}
torch.bfloat16
True False
torch.Size([1, 1])
0
"""


def test_names_mean_the_cpu() -> None:
    """Each way to name a device gives the CPU; other texts stay."""
    answer = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert answer.stderr == ""
    assert answer.stdout == EXPECTED
