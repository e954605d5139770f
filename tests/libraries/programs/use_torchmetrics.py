"""torchmetrics: metrics of classes, of numbers and of images; collections and means that are pickled."""

import inspect
import json
import pickle

import torch
import torchmetrics
from torchmetrics.functional import audio, classification, image, regression

torch.manual_seed(0)
samples = {
    "binary": (torch.rand(64), torch.randint(0, 2, (64,))),
    "multiclass": (torch.randn(64, 5).softmax(-1), torch.randint(0, 5, (64,))),
    "multilabel": (torch.rand(64, 5), torch.randint(0, 2, (64, 5))),
}
needed = {"num_classes": 5, "num_labels": 5, "min_sensitivity": 0.5, "min_specificity": 0.5, "min_precision": 0.5}
needed |= {"min_recall": 0.5, "beta": 2.0}
figures = {}


def note(name, values):
    if isinstance(values, dict):
        values = list(values.values())
    values = values if isinstance(values, (list, tuple)) else [values]
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    figures[name] = [round(t.double().nan_to_num(-1.0).sum().item(), 4) for t in flat]


for name in sorted(dir(classification)):
    metric = getattr(classification, name)
    parameters = inspect.signature(metric).parameters if callable(metric) and name[0] != "_" else {}
    kind = name.partition("_")[0]
    if kind in samples and "preds" in parameters and "groups" not in parameters:
        note(name, metric(*samples[kind], **{k: v for k, v in needed.items() if k in parameters}))
a, b = torch.rand(64) + 0.1, torch.rand(64) + 0.1
for name in ("mean_squared_error", "r2_score", "pearson_corrcoef", "spearman_corrcoef", "kendall_rank_corrcoef"):
    note(name, getattr(regression, name)(a, b))
x, y = torch.rand(2, 3, 64, 64), torch.rand(2, 3, 64, 64)
note("ssim", image.structural_similarity_index_measure(x, y))
note("psnr", image.peak_signal_noise_ratio(x, y, data_range=1.0))
speech = torch.randn(4000)
note("sdr", audio.signal_distortion_ratio(speech + 0.1 * torch.randn(4000), speech))
metrics = torchmetrics.MetricCollection(
    [torchmetrics.Accuracy("multiclass", num_classes=5), torchmetrics.AUROC("multiclass", num_classes=5)]
)
for _ in range(2):
    metrics.update(*samples["multiclass"])
note("collection", metrics.compute())
mean = torchmetrics.MeanMetric()
mean.update(torch.tensor([1.0, 2.0]))
mean(3.0)
note("pickled", pickle.loads(pickle.dumps(mean)).compute())
print(json.dumps(figures))
