import torch

model = torch.nn.Linear(8, 1).to("mps")
model.load_state_dict(torch.load("saved_on_cuda.pt", map_location="mps"))
y = model(torch.rand(32, 8, device="mps"))
