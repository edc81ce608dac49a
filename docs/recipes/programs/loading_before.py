import torch
from torch.utils.data import DataLoader

device = "mps"
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.rand(640, 8), batch_size=32, shuffle=True, pin_memory=True)

for x in loader:
    loss = model(x.to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
