import torch

device = "mps"
model = torch.nn.Linear(512, 512).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outputs = []

for _ in range(8):
    y = model(torch.rand(1024, 512, device=device))
    loss = y.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    outputs.append(y)
