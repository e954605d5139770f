"""transformers' generate(): greedy, sampled, beams, caches, an assistant."""

import json

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

GPT2 = GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64, bos_token_id=1, eos_token_id=2)
LLAMA = LlamaConfig(
    vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64,
)  # fmt: skip
T5 = T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
WAYS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.8, "repetition_penalty": 1.2},
    "min_p": {"do_sample": True, "min_p": 0.02, "typical_p": 0.9},
    "beams": {"num_beams": 3, "num_return_sequences": 2, "no_repeat_ngram_size": 2},
    "sampled_beams": {"num_beams": 2, "do_sample": True},
    "static": {"cache_implementation": "static", "do_sample": False},
    "no_cache": {"use_cache": False, "do_sample": False},
}
ids, figures = torch.tensor([[5, 6, 7], [8, 9, 10]]), {}
for kind, config in ((GPT2LMHeadModel, GPT2), (LlamaForCausalLM, LLAMA)):
    torch.manual_seed(0)
    model = kind(config).eval()
    model.generation_config.pad_token_id = 0
    for name, choices in WAYS.items():
        torch.manual_seed(0)
        mask = torch.ones_like(ids)
        made = model.generate(ids, attention_mask=mask, max_new_tokens=8, **choices)
        figures[f"{kind.__name__} {name}"] = made.tolist()
    one = ids[:1]
    made = model.generate(
        one, attention_mask=torch.ones_like(one), max_new_tokens=8, assistant_model=model, do_sample=False
    )
    figures[f"{kind.__name__} assisted"] = made.tolist()
torch.manual_seed(0)
model = T5ForConditionalGeneration(T5).eval()
figures["T5 beams"] = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=8, num_beams=2).tolist()
print(json.dumps(figures))
