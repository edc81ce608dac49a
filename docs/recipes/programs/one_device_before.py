import torch

device = "mps"
model = torch.nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(20):
    x, y = torch.rand(32, 8), torch.randint(0, 3, (32,))
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
