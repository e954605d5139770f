"""Models of torchvision, with ten classes; small ones see images of fewer pixels."""

from functools import partial

from .catalog import Model, Work, integers, numbers

SIZE = 64  # height and width of a small image, unless the row says otherwise

# {name: changes of a small one; size: its images' height and width}
CLASSIFIERS = {
    "alexnet": {},
    "convnext_tiny": {},
    "densenet121": {},
    "efficientnet_b0": {},
    "googlenet": {"init_weights": False},
    "inception_v3": {"init_weights": False, "aux_logits": False, "size": 128},
    "maxvit_t": {"size": 224},
    "mnasnet1_0": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "regnet_y_400mf": {},
    "resnet18": {},
    "resnet50": {},
    "shufflenet_v2_x1_0": {},
    "squeezenet1_1": {},
    "swin_t": {},
    "vgg11": {"size": 32},
    "vit_b_16": {"image_size": 64},
}
OF_FULL = ("init_weights",)  # changes that the full models get, too


def classification_loss(torch, labels):
    """Cross-entropy of an output's parts: logits, or those of auxiliary heads beside them."""

    def loss(output):
        parts = [output] if isinstance(output, torch.Tensor) else [part for part in output if part is not None]
        losses = [torch.nn.functional.cross_entropy(part, labels) for part in parts]
        return sum(losses[1:], losses[0])

    return loss


def make(torch, full, name, changes):
    """The model `name` of torchvision and a batch for it: images (B, 3, H, W)."""
    import torchvision.models

    changes = dict(changes)
    size = changes.pop("size", SIZE) if not full else 299 if name == "inception_v3" else 224
    if full:
        changes = {key: value for key, value in changes.items() if key in OF_FULL}
    model = torchvision.models.get_model(name, weights=None, num_classes=10, **changes)
    batch = {"": numbers(torch, (4, 3, size, size))}
    return Work(model, batch, classification_loss(torch, integers(torch, (4,), 10)))


def models():
    """The rows as Models."""
    for name, changes in CLASSIFIERS.items():
        yield Model(name, "torchvision", partial(make, name=name, changes=changes))
