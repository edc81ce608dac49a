"""A small classifier with a switch for CUDA, a loader that pins, and a checkpoint."""

import argparse
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
use_cuda = not args.no_cuda and torch.cuda.is_available()
torch.manual_seed(1)
device = torch.device("cuda" if use_cuda else "cpu")
kwargs = {"num_workers": 0, "pin_memory": True} if use_cuda else {}
data = TensorDataset(torch.rand(32, 1, 8, 8), torch.randint(0, 4, (32,)))
loader = DataLoader(data, batch_size=8, **kwargs)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).to(device)
optimizer = torch.optim.Adam(model.parameters())
for x, y in loader:
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
with tempfile.NamedTemporaryFile() as file:
    torch.save(model.state_dict(), file.name)
    model.load_state_dict(torch.load(file.name, map_location="cuda"))
print(device.type, next(model.parameters()).device)
