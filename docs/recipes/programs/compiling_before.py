import torch

device = "mps"
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="eager")  # finds the graph and compiles nothing: enough to see breaks; leave it out to be fast
def loss_of(x):
    y = model(x)
    if y.mean() > 0:
        y = y * 2
    return y.square().mean()


for _ in range(20):
    loss = loss_of(torch.rand(32, 8, device=device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
