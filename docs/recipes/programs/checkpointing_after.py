import torch
from torch.utils.checkpoint import checkpoint

block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).to("mps")
dropout = torch.nn.Dropout(0.1)
optimizer = torch.optim.SGD(block.parameters(), lr=0.1)

for _ in range(20):
    x = torch.rand(32, 8, device="mps")
    loss = dropout(checkpoint(block, x, use_reentrant=False)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
