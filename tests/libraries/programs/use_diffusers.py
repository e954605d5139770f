"""diffusers: training a small UNet, a pipeline that is saved and loaded, five schedulers, an autoencoder, compiled."""

import json
import tempfile

import diffusers
import torch

torch.manual_seed(0)
unet = diffusers.UNet2DModel(
    sample_size=16, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
noise_schedule = diffusers.DDPMScheduler(num_train_timesteps=100)
optimizer, images, figures = torch.optim.AdamW(unet.parameters(), lr=1e-3), torch.randn(2, 3, 16, 16), {"losses": []}
for _ in range(3):
    noise, times = torch.randn(images.shape), torch.randint(0, 100, (2,))
    noisy = noise_schedule.add_noise(images, noise, times)
    loss = torch.nn.functional.mse_loss(unet(noisy, times, return_dict=False)[0], noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    figures["losses"].append(loss.item())


def images_of(pipeline):
    generator = torch.Generator().manual_seed(0)
    return pipeline(num_inference_steps=4, generator=generator, output_type="np").images


pipeline, folder = diffusers.DDPMPipeline(unet, noise_schedule), tempfile.mkdtemp()
pipeline.set_progress_bar_config(disable=True)
pipeline.save_pretrained(folder)
loaded = diffusers.DDPMPipeline.from_pretrained(folder)
figures["image"] = float(images_of(pipeline).mean())
assert abs(images_of(loaded) - images_of(pipeline)).max() < 1e-4
unet.eval()
for name in ("DDIM", "DPMSolverMultistep", "EulerDiscrete", "PNDM", "UniPCMultistep"):
    schedule = getattr(diffusers, f"{name}Scheduler")(num_train_timesteps=100)
    schedule.set_timesteps(5)
    x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * schedule.init_noise_sigma
    with torch.no_grad():
        for t in schedule.timesteps:
            x = schedule.step(unet(schedule.scale_model_input(x, t), t).sample, t, x).prev_sample
    figures[name] = x.std().item()
autoencoder = diffusers.AutoencoderKL(
    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    block_out_channels=(32, 64), norm_num_groups=8,
)  # fmt: skip
latent = autoencoder.encode(torch.randn(1, 3, 16, 16)).latent_dist.sample(torch.Generator().manual_seed(0))
decoded = autoencoder.decode(latent).sample
decoded.square().mean().backward()
figures["decoded"] = decoded.std().item()
x, t = torch.randn(2, 3, 16, 16), torch.tensor([3, 5])
with torch.no_grad():
    torch.testing.assert_close(torch.compile(unet)(x, t).sample, unet(x, t).sample)
print(json.dumps(figures))
