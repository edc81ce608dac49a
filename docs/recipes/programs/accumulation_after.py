import torch

torch.mps.set_per_process_memory_fraction(0.02)  # as if the model left no more than this
model = torch.nn.Linear(512, 512).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.rand(32768, 512) for _ in range(3)]

for batch in batches:
    optimizer.zero_grad()
    for part in batch.split(4096):
        loss = model(part.to("mps")).square().mean() / 8
        loss.backward()
    optimizer.step()
