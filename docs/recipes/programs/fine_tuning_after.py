import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2}
config = LlamaConfig(**sizes, num_attention_heads=4, attn_implementation="eager")
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained("base")  # in place of a download
base = LlamaForCausalLM.from_pretrained("base", dtype=torch.bfloat16, attn_implementation="eager")
model = get_peft_model(base.to("mps"), LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
trained = [weight for weight in model.parameters() if weight.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=2e-3, fused=True)
text = torch.randint(256, (10, 4, 64)).to("mps")
mask = torch.ones_like(text[0])

for tokens in text[:8]:
    loss = model(input_ids=tokens, attention_mask=mask, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

model.save_pretrained("adapters")
base = LlamaForCausalLM.from_pretrained("base", dtype=torch.bfloat16, attn_implementation="eager")
loaded = PeftModel.from_pretrained(base.to("mps"), "adapters")
with torch.no_grad():
    held_out = [net(input_ids=text[9], attention_mask=mask, labels=text[9]).loss for net in (model, loaded)]
print(torch.stack(held_out).tolist())
