"""What a model of the benchmark is: its name, its library, and the function that makes it with a batch of made-up data.

model = find("resnet18")
work = model.make(torch, full=False)         # torch: wick or PyTorch
loss = work.loss(work.run(work.batch))
"""

import importlib.util
from dataclasses import dataclass, replace


@dataclass
class Work:
    """What a model's function returns."""

    model: object  # a torch.nn.Module
    batch: dict  # arguments of its forward, by name; "" is the first, whatever it is called
    loss: object  # what forward returns -> a tensor of one element

    def run(self, batch):
        """What the model gives for a batch."""
        if "" in batch:
            return self.model(batch[""])
        return self.model(**batch)


@dataclass(frozen=True)
class Model:
    """A row of a library's list."""

    name: str
    library: str  # the package that it comes from
    make: object  # (torch, full) -> Work
    same_compiled: bool = True  # False where the library itself computes otherwise when it is compiled


LIBRARIES = ("transformers", "timm", "torchvision")


def is_installed(library):
    """Whether the package can be imported, without importing it."""
    return importlib.util.find_spec(library) is not None


def models():
    """{name: Model}, in the lists' order. A name that two libraries have is the timm model's with `timm.` before it."""
    from . import huggingface, timm, torchvision

    found = {}
    for module in (huggingface, torchvision, timm):
        for model in module.models():
            name = model.name if model.name not in found else f"{model.library}.{model.name}"
            found[name] = replace(model, name=name)
    return found


def find(name):
    """The Model of this name; ValueError with names like it where there is none."""
    import difflib

    found = models()
    if name in found:
        return found[name]
    near = difflib.get_close_matches(name, found, 3, 0.5)
    raise ValueError(f"no model is called {name!r}" + (f"; there are {', '.join(near)}" if near else "; see --list"))


def integers(torch, shape, below, seed=0):
    """A tensor of made-up integers, the same in every library."""
    import numpy

    return torch.from_numpy(numpy.random.RandomState(seed).randint(0, below, shape))


def numbers(torch, shape, seed=0):
    """A tensor of made-up normal numbers of the default dtype, the same in every library."""
    import numpy

    return torch.from_numpy(numpy.random.RandomState(seed).randn(*shape)).to(torch.get_default_dtype())


def mean_square(torch, output):
    """A loss for outputs without one: the sum of the mean squares of all floating tensors in them."""
    if isinstance(output, torch.Tensor):
        return output.square().mean()
    parts = output.values() if hasattr(output, "values") else output
    losses = [mean_square(torch, part) for part in parts if _has_floats(torch, part)]
    return sum(losses[1:], losses[0])


def _has_floats(torch, part):
    if isinstance(part, torch.Tensor):
        return part.is_floating_point() and part.requires_grad
    return isinstance(part, (tuple, list)) and any(_has_floats(torch, item) for item in part)
