import numpy
import torch

device = "mps"
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = numpy.random.rand(20, 32, 8).astype("float32")

for batch in batches:
    x = torch.from_numpy(batch).to(device)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
