"""timm's training loop on made-up pictures: mixup, weight decay by group, a schedule with warmup, averaged weights, a
checkpoint, accuracy; operations by module; the trained model scripted by its graph and loaded again."""

import io
import json

import timm
import timm.utils
import torch
from timm.data import Mixup, create_transform, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(0)
model = timm.create_model("resnet10t", num_classes=10, drop_rate=0.1)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
scheduler, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=2, warmup_epochs=1, updates_per_epoch=2)
average = timm.utils.ModelEmaV3(model, decay=0.5)
images, labels = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
mixed = images.clone(), torch.nn.functional.one_hot(labels, 10) * 0.9 + 0.01
figures = {"losses": [], "rates": [], "groups": [len(group["params"]) for group in optimizer.param_groups]}

updates = 0
for epoch in range(epochs):
    model.train()
    for x, target, criterion in ((images, labels, LabelSmoothingCrossEntropy(0.1)), (*mixed, SoftTargetCrossEntropy())):
        optimizer.zero_grad()
        loss = criterion(model(x), target)
        loss.backward()
        timm.utils.dispatch_clip_grad(model.parameters(), value=1.0)
        optimizer.step()
        updates += 1
        average.update(model, step=updates)
        scheduler.step_update(num_updates=updates, metric=loss.item())
        figures["losses"].append(loss.item())
    scheduler.step(epoch + 1, None)
    figures["rates"].append(optimizer.param_groups[0]["lr"])

model.eval()
average.eval()
with torch.no_grad():
    scores, averaged = model(images), average.module(images)
figures["accuracy"] = [v.item() for v in timm.utils.accuracy(scores, labels, topk=(1, 5))]
figures["scores"] = [scores.square().mean().item(), averaged.square().mean().item()]
with FlopCounterMode(display=False) as counter:
    model(images)
figures["operations"] = counter.get_total_flops()
figures["features"] = [list(f.shape) for f in timm.create_model("resnet10t", features_only=True)(images)]
figures["transform"] = len(create_transform(**resolve_data_config({}, model=model)).transforms)
Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=10)(images.clone(), labels)  # draws from NumPy

file = io.BytesIO()
torch.jit.save(torch.jit.trace(model, images), file)
file.seek(0)
loaded = torch.jit.load(file)
torch.testing.assert_close(loaded(images), scores)
torch.testing.assert_close(loaded(images[:3]), scores[:3])
print(json.dumps(figures))
