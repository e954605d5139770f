"""accelerate on one process: prepare, accumulate, clip, save and load the state."""

import json
import os
import tempfile

import torch
from accelerate import Accelerator, init_empty_weights
from accelerate.utils import set_seed

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,)))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
losses, rates = [], []
for x, y in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    losses.append(loss.item())
    rates.append(schedule.get_last_lr()[0])
folder = tempfile.mkdtemp()
accelerator.save_state(folder)
accelerator.load_state(folder)
with init_empty_weights():
    assert torch.nn.Linear(1000, 1000).weight.device.type == "meta"
print(json.dumps({"losses": losses, "rates": rates, "files": sorted(os.listdir(folder))}))
