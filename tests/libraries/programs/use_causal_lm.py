"""Fine-tuning of a causal language model with transformers' Trainer on made-up text, as its documentation does: a tokenizer,
blocks of text, DataCollatorForLanguageModeling, perplexity, generation, the model saved and loaded."""

import json
import math
import tempfile

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    DataCollatorForLanguageModeling,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

words = ["<pad>", "<eos>", *(f"w{i}" for i in range(62))]
made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<eos>"))
made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")
texts = [" ".join(f"w{(i * j + j) % 62}" for j in range(6 + i % 5)) for i in range(32)]
rows = [tokenizer(text + " <eos>", return_token_type_ids=False) for text in texts]

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0,
    bos_token_id=1, eos_token_id=1,
)  # fmt: skip
model = AutoModelForCausalLM.from_config(config)
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), eval_strategy="epoch", learning_rate=2e-3, weight_decay=0.01, num_train_epochs=2,
    report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
)  # fmt: skip
collator = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm=False)
trainer = Trainer(
    model=model, args=arguments, train_dataset=rows[:24], eval_dataset=rows[24:], data_collator=collator,
    processing_class=tokenizer,
)  # fmt: skip
loss = trainer.train().training_loss
evaluated = trainer.evaluate()["eval_loss"]
folder = tempfile.mkdtemp()
trainer.save_model(folder)
loaded = AutoModelForCausalLM.from_pretrained(folder)
prompt = tokenizer("w1 w2 w3", return_tensors="pt", return_token_type_ids=False)
generated = loaded.generate(**prompt, max_new_tokens=5, do_sample=False)
assert torch.equal(generated, model.generate(**prompt, max_new_tokens=5, do_sample=False))
print(json.dumps({
    "loss": loss, "evaluated": evaluated, "perplexity": math.exp(evaluated), "generated": generated.tolist(),
    "text": tokenizer.batch_decode(generated, skip_special_tokens=True),
}))  # fmt: skip
