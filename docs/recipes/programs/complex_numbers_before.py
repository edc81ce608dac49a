import torch

angles = torch.arange(8, dtype=torch.float64)
rotation = torch.polar(torch.ones_like(angles), angles).to("mps")
x = torch.rand(32, 8, dtype=torch.complex64, device="mps")
y = torch.view_as_real(x * rotation)
