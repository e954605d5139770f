"""transformers' Trainer on made-up data: evaluation, checkpoints, going on from one, compiled, bfloat16, checkpointing."""

import json
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

CONFIG = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


class Sums(torch.utils.data.Dataset):
    """Rows of numbers, and whether their sum is odd."""

    def __init__(self, count):
        self.rows = torch.randint(0, 50, (count, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return {"input_ids": row, "attention_mask": torch.ones(12, dtype=torch.long), "labels": row.sum() % 2}


def trained(**choices):
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(vocab_size=50, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **CONFIG)
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=2, per_device_train_batch_size=8, eval_strategy="epoch",
        save_strategy="epoch", logging_steps=2, report_to=[], use_cpu=True, disable_tqdm=True, **choices,
    )  # fmt: skip
    accuracy = lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())}  # noqa: E731
    trainer = Trainer(model, arguments, train_dataset=Sums(32), eval_dataset=Sums(16), compute_metrics=accuracy)
    loss = trainer.train().training_loss
    found = trainer.evaluate()
    return trainer, [loss, found["eval_loss"], found["eval_accuracy"]]


trainer, figures = trained(load_best_model_at_end=True)
assert trainer.train(resume_from_checkpoint=True).training_loss == 0  # nothing is left to do
predicted = trainer.predict(Sums(8)).predictions
print(json.dumps({
    "plain": figures,
    "predicted": predicted.tolist(),
    "compiled": trained(torch_compile=True)[1],
    "bf16": [round(x, 2) for x in trained(bf16=True)[1]],
    "checkpointed": trained(gradient_checkpointing=True, gradient_accumulation_steps=2)[1],
}))  # fmt: skip
