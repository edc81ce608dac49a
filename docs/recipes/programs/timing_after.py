import time

import torch

x = torch.rand(256, 256, device="mps")
y = x @ x  # the first call compiles
torch.mps.synchronize()

start = time.perf_counter()
for _ in range(100):
    y = x @ x
torch.mps.synchronize()
seconds = time.perf_counter() - start
print("a product took", seconds / 100, "seconds")
