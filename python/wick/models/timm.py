"""Models of timm, the families of PyTorch 2's benchmark and today's, each by its smallest; with ten classes."""

from functools import partial

from .catalog import Model, Work, integers, numbers
from .torchvision import classification_loss

VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}

# {name: (height and width of a small image, changes of a small one)}
ROWS = {
    "beit_base_patch16_224": (32, VIT),
    "botnet26t_256": (64, {"img_size": 64}),
    "cait_xxs24_224": (32, {"img_size": 32, "patch_size": 8, "depth": 2}),
    "caformer_s18": (64, {}),
    "coat_tiny": (64, {"img_size": 64}),
    "coatnet_nano_rw_224": (64, {"img_size": 64}),
    "convit_tiny": (32, {"img_size": 32, "patch_size": 8, "depth": 4, "local_up_to_layer": 2}),
    "convmixer_768_32": (64, {}),
    "convnext_atto": (64, {}),
    "convnextv2_atto": (64, {}),
    "crossvit_9_240": (240, {}),
    "cspdarknet53": (64, {}),
    "cspresnet50": (64, {}),
    "davit_tiny": (64, {"depths": (1, 1, 1, 1), "embed_dims": (16, 32, 48, 64), "num_heads": (2, 2, 4, 4),
                        "window_size": 2}),
    "deit_tiny_distilled_patch16_224": (32, VIT),
    "dla34": (64, {}),
    "dm_nfnet_f0": (64, {}),
    "dpn68": (64, {}),
    "eca_botnext26ts_256": (64, {"img_size": 64}),
    "eca_halonext26ts": (256, {}),
    "edgenext_xx_small": (64, {}),
    "efficientformerv2_s0": (64, {"img_size": 64}),
    "efficientnet_b0": (64, {}),
    "efficientvit_b0": (64, {}),
    "ese_vovnet19b_dw": (64, {}),
    "eva02_tiny_patch14_224": (28, {"img_size": 28, "depth": 2}),
    "fastvit_t8": (64, {}),
    "fbnetc_100": (64, {}),
    "fbnetv3_b": (64, {}),
    "focalnet_tiny_srf": (64, {}),
    "gernet_s": (64, {}),
    "ghostnet_100": (64, {}),
    "gmixer_12_224": (64, {"img_size": 64}),
    "gmlp_ti16_224": (64, {"img_size": 64}),
    "hgnetv2_b0": (64, {}),
    "hiera_tiny_224": (64, {"img_size": (64, 64), "stages": (1, 1, 1, 1), "embed_dim": 16}),
    "hrnet_w18_small": (64, {}),
    "inception_next_atto": (64, {}),
    "inception_v3": (128, {}),
    "lcnet_050": (64, {}),
    "levit_128s": (64, {"img_size": 64}),
    "maxvit_pico_rw_256": (64, {"img_size": 64}),
    "mixer_s16_224": (64, {"img_size": 64}),
    "mixnet_s": (64, {}),
    "mnasnet_small": (64, {}),
    "mobilenetv2_050": (64, {}),
    "mobilenetv3_small_050": (64, {}),
    "mobilenetv4_conv_small": (64, {}),
    "mobileone_s0": (64, {}),
    "mobilevit_xxs": (64, {}),
    "nest_tiny": (64, {"img_size": 64}),
    "nextvit_small": (64, {}),
    "nf_resnet26": (64, {}),
    "nfnet_l0": (64, {}),
    "pit_ti_224": (64, {"img_size": 64}),
    "poolformer_s12": (64, {}),
    "regnety_002": (64, {}),
    "repvgg_a0": (64, {}),
    "repvit_m0_9": (64, {}),
    "res2net50_14w_8s": (64, {}),
    "res2next50": (64, {}),
    "resmlp_12_224": (64, {"img_size": 64}),
    "resnest14d": (64, {}),
    "resnet18": (64, {}),
    "resnetv2_50": (64, {"layers": (1, 1, 1, 1)}),
    "resnext50_32x4d": (64, {"layers": (1, 1, 1, 1)}),
    "rexnet_100": (64, {}),
    "sebotnet33ts_256": (64, {"img_size": 64}),
    "selecsls42": (64, {}),
    "spnasnet_100": (64, {}),
    "swin_tiny_patch4_window7_224": (56, {"img_size": 56, "depths": (1, 1), "embed_dim": 24, "num_heads": (2, 4)}),
    "swinv2_cr_tiny_224": (64, {"img_size": 64, "depths": (1, 1), "embed_dim": 24, "num_heads": (2, 4)}),
    "tinynet_e": (64, {}),
    "tnt_s_legacy_patch16_224": (32, {"img_size": 32, "depth": 2}),
    "twins_svt_small": (64, {"img_size": 64}),
    "visformer_tiny": (64, {"img_size": 64}),
    "vit_tiny_patch16_224": (32, VIT),
    "volo_d1_224": (64, {"img_size": 64}),
    "xcit_nano_12_p16_224": (64, {"img_size": 64, "depth": 2}),
}  # fmt: skip


def make(torch, full, name, size, changes):
    """The model `name` of timm and a batch for it: images (B, 3, H, W)."""
    import timm

    model = timm.create_model(name, num_classes=10, **({} if full else changes))
    if full:
        size = model.default_cfg["input_size"][-1]
    batch = {"": numbers(torch, (4, 3, size, size))}
    return Work(model, batch, classification_loss(torch, integers(torch, (4,), 10)))


def models():
    """The rows as Models."""
    for name, (size, changes) in ROWS.items():
        yield Model(name, "timm", partial(make, name=name, size=size, changes=changes))
