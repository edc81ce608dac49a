import torch
from safetensors import safe_open

torch.mps.set_per_process_memory_fraction(0.01)  # as if other programs left no more than this
model = torch.nn.Sequential(*(torch.nn.Linear(1536, 1536) for _ in range(8))).to("mps")
with safe_open("weights.safetensors", framework="pt", device="mps") as file:
    model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})
y = model(torch.rand(32, 1536, device="mps"))
