"""PyTorch Lightning: Trainer.fit with validation, metrics, checkpoints, bfloat16; a compiled module."""

import json
import tempfile

import pytorch_lightning as lightning
import torch
import torchmetrics
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint


class Classifier(lightning.LightningModule):
    def __init__(self, hidden=16):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, hidden), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(hidden, 3)
        )
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        scores = self.layers(batch[0])
        self.accuracy(scores, batch[1])
        self.log("accuracy", self.accuracy)
        self.log("validation", torch.nn.functional.cross_entropy(scores, batch[1]))

    def predict_step(self, batch, index):
        return self.layers(batch[0]).argmax(-1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def trainer_of(**choices):
    return lightning.Trainer(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, **choices)


lightning.seed_everything(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
training = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
validation = torch.utils.data.DataLoader(data, batch_size=16)
keeper = ModelCheckpoint(monitor="validation")
trainer = trainer_of(
    max_epochs=3, default_root_dir=tempfile.mkdtemp(), logger=False, gradient_clip_val=1.0,
    callbacks=[keeper, EarlyStopping("validation")],
)  # fmt: skip
model = Classifier()
trainer.fit(model, training, validation)
figures = {name: value.item() for name, value in trainer.callback_metrics.items()}
loaded = Classifier.load_from_checkpoint(keeper.best_model_path)
figures["hidden"] = loaded.hparams.hidden
figures["predicted"] = torch.cat(trainer.predict(loaded, validation)).tolist()
figures["validated"] = trainer.validate(loaded, validation, verbose=False)[0]
plain = {"logger": False, "enable_checkpointing": False, "max_epochs": 1}
trainer_of(precision="bf16-mixed", **plain).fit(Classifier(), training)
model = Classifier()
model.layers.compile()
trainer_of(**plain).fit(model, training)
model = Classifier()
model.example_input_array = torch.randn(4, 8)
model.forward = model.layers.forward
summary = lightning.utilities.model_summary.ModelSummary(model, max_depth=-1)
figures["summary"] = [summary.total_parameters, summary.total_flops, summary.out_sizes]
print(json.dumps(figures))
