"""peft: LoRA and its kin on a small GPT-2: training, saving, loading, merging."""

import json
import tempfile

import torch
from peft import AdaLoraConfig, IA3Config, LoraConfig, PeftModel, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=32, bos_token_id=1, eos_token_id=2)
base, ids, folder = GPT2LMHeadModel(config), torch.randint(0, 100, (2, 10)), tempfile.mkdtemp()
base.save_pretrained(f"{folder}/base")
lora = {"task_type": "CAUSAL_LM", "r": 4, "fan_in_fan_out": True}
model = get_peft_model(base, LoraConfig(lora_alpha=8, lora_dropout=0.1, **lora))
optimizer, figures = torch.optim.AdamW(model.parameters(), lr=1e-2), {"losses": []}
for _ in range(3):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    figures["losses"].append(loss.item())
model.eval()
logits = model(input_ids=ids).logits
model.save_pretrained(f"{folder}/lora")
loaded = PeftModel.from_pretrained(GPT2LMHeadModel.from_pretrained(f"{folder}/base"), f"{folder}/lora").eval()
assert torch.equal(loaded(input_ids=ids).logits, logits)
torch.testing.assert_close(model.merge_and_unload()(input_ids=ids).logits, logits)
for kind, choices in (
    (IA3Config, {"feedforward_modules": ["c_fc"], "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}),
    (PromptTuningConfig, {"num_virtual_tokens": 4}),
    (PrefixTuningConfig, {"num_virtual_tokens": 4}),
    (LoraConfig, {"use_dora": True, "r": 4, "fan_in_fan_out": True}),
    (AdaLoraConfig, {"init_r": 4, "target_r": 2, "total_step": 10, "fan_in_fan_out": True}),
):
    torch.manual_seed(0)
    model = get_peft_model(GPT2LMHeadModel(config), kind(task_type="CAUSAL_LM", **choices))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    norms = [p.grad.norm().item() for p in model.parameters() if p.grad is not None]
    figures[kind.__name__ + ("_dora" if "use_dora" in choices else "")] = [loss.item(), sum(norms)]
print(json.dumps(figures))
