# PYTORCH_ENABLE_MPS_FALLBACK=1
import torch

device = "mps"
model = torch.nn.Conv2d(4, 4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(20):
    x = torch.rand(8, 4, 6, 6, device=device)
    x = x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
