"""wick.models: models of timm, transformers and torchvision, as they are installed, under wick and PyTorch.

    python -m wick.models --list                              # the models of the benchmark, and which libraries are there
    python -m wick.models resnet18 BertForMaskedLM            # two training steps: losses and gradients against PyTorch's
    python -m wick.models --all --compile --out report        # all of them; stopped and called again it goes on
    python -m wick.models vit_b_16 --infer --time             # a forward pass, and how long it takes on each engine

Each model is made from the same seed by each engine, gets the same made-up data, and trains with dropout and whatever
else its library does at random. Nothing is downloaded. Small configurations are the rule; --full takes the libraries' own.
PyTorch's losses in float64 say how far apart two right answers in float32 may be.

`catalog.py` says what a model of the benchmark is, `huggingface.py`, `timm.py` and `torchvision.py` which there are,
`worker.py` runs one, `check.py` judges, `report.py` shows, `__main__.py` is the command. This package is also loaded by
processes that must not load wick: its modules import wick only where they say so.
"""
