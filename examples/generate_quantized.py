"""Token generation with quantized weights: a model of GPT-2's size writes, in float32, int8 and int4.

    python examples/generate_quantized.py [--tokens 64] [--compile] [--threads 2] [--layers 12 --width 768 --heads 12]
    python examples/generate_quantized.py --ctranslate2       # beside CTranslate2 with the same weights, where it is installed

Weights are made up, so what is written has no meaning; what is measured is the time of a token, which is that of reading
all weights once, and how far the logits are from float32's. The model is given the same tokens each time, so that errors
are comparable. Measured: the time of one token, the best third of all averaged.
"""

import argparse
import copy
import json
import pathlib
import time

import wick as torch
from wick import nn
from wick.ao.quantization import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)
from wick.nn import functional as F

VOCABULARY, CONTEXT = 50257, 1024
WAYS = {
    "float32": None,
    "int8": Int8WeightOnlyConfig(),
    "int8, activations too": Int8DynamicActivationInt8WeightConfig(),
    "int4, groups of 128": Int4WeightOnlyConfig(128),
    "int4, groups of 32": Int4WeightOnlyConfig(32),
}


class Block(nn.Module):
    """Attention over what was seen, kept as keys and values (1, heads, CONTEXT, D), then two linear layers."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        shape = 1, heads, CONTEXT, width // heads
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape), persistent=False)

    def forward(self, x, start):
        length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(1, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        end = start + length
        self.keys[:, :, start:end] = k
        self.values[:, :, start:end] = v
        keys, values = self.keys[:, :, :end], self.values[:, :, :end]
        y = F.scaled_dot_product_attention(q, keys, values, is_causal=length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Model(nn.Module):
    """Tokens (T) that come at position `start` -> logits of the next one (VOCABULARY)."""

    def __init__(self, layers, width, heads, vocabulary=VOCABULARY):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        self.head.weight = nn.Parameter(self.tokens.weight.detach().clone())

    def forward(self, tokens, start):
        x = self.tokens(tokens) + self.places.weight[start : start + len(tokens)]
        for block in self.blocks:
            x = block(x, start)
        return self.head(self.norm(x[-1:]))[0]


def weight_bytes(model):
    """Of what a token reads: not the tables of embeddings."""
    tables = {id(model.tokens.weight), id(model.places.weight)}
    kept = [t for t in (*model.parameters(), *model.buffers()) if id(t) not in tables and t.dim() != 4]
    return sum(t.numel() * t.element_size() for t in kept)


@torch.no_grad()
def generate(step, tokens, given):
    """Logits after each of the tokens, `given` of which come at once, and the time of each one that came alone."""
    logits, times = [step(tokens[:given], 0)], []
    for at in range(given, len(tokens)):
        begin = time.perf_counter()
        logits.append(step(tokens[at : at + 1], at))
        times.append(time.perf_counter() - begin)
    return torch.stack(logits), times


def best_third(times):
    """In ms."""
    chosen = sorted(times)[: max(1, len(times) // 3)]
    return 1e3 * sum(chosen) / len(chosen)


def measure(options, model, tokens):
    """[(name, ms of a token, MB of weights, relative error of logits, share of tokens that are the same)]

    Rounds go through all ways, so that what else the machine does meets each alike.
    """
    steps, sizes, times, logits = {}, {}, {name: [] for name in WAYS}, {}
    for name, config in WAYS.items():
        own = copy.deepcopy(model)
        if config is not None:
            quantize_(own, config)
        sizes[name] = weight_bytes(own) / 1e6
        steps[name] = torch.compile(own, dynamic=True) if options.compile else own
        generate(steps[name], tokens[: options.given + 4], options.given)
    for _ in range(options.rounds):
        for name, step in steps.items():
            logits[name], taken = generate(step, tokens, options.given)
            times[name] += taken
    reference, rows = logits["float32"], []
    for name in WAYS:
        error = ((logits[name] - reference).norm() / reference.norm()).item()
        same = (logits[name].argmax(1) == reference.argmax(1)).float().mean().item()
        rows.append((name, best_third(times[name]), sizes[name], error, same))
    return rows


# ---- CTranslate2 ----


def translated(model, options):
    """The same model as CTranslate2 wants it, in a folder."""
    import tempfile

    import numpy
    from ctranslate2.specs import common_spec, transformer_spec

    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        options.layers, options.heads, pre_norm=True, activation=common_spec.Activation.GELUTanh
    )

    def linear(target, layer):
        target.weight = layer.weight.detach().numpy()
        if layer.bias is not None:
            target.bias = layer.bias.detach().numpy()

    def norm(target, layer):
        target.gamma, target.beta = layer.weight.detach().numpy(), layer.bias.detach().numpy()

    decoder = spec.decoder
    decoder.embeddings.weight = model.tokens.weight.detach().numpy()
    decoder.position_encodings.encodings = model.places.weight.detach().numpy()
    decoder.scale_embeddings = False
    for target, block in zip(decoder.layer, model.blocks, strict=True):
        norm(target.self_attention.layer_norm, block.norm_1)
        linear(target.self_attention.linear[0], block.qkv)
        linear(target.self_attention.linear[1], block.out)
        norm(target.ffn.layer_norm, block.norm_2)
        linear(target.ffn.linear_0, block.up)
        linear(target.ffn.linear_1, block.down)
    norm(decoder.layer_norm, model.norm)
    decoder.projection.weight = model.head.weight.detach().numpy()
    spec.register_vocabulary([f"t{i}" for i in range(len(numpy.asarray(decoder.embeddings.weight)))])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "t0"
    folder = tempfile.mkdtemp()
    spec.validate()
    spec.save(folder)
    return folder


def measure_other(options, model, tokens):
    """[(name, ms of a token)] of CTranslate2: a long and a short text, the difference of both a token."""
    import ctranslate2

    folder, rows = translated(model, options), []
    prompt = [f"t{i}" for i in tokens[: options.given].tolist()]
    for kind in ("float32", "int8"):
        generator = ctranslate2.Generator(folder, compute_type=kind, intra_threads=options.threads)

        def run(count, generator=generator):
            begin = time.perf_counter()
            generator.generate_batch([prompt], max_length=count, min_length=count, sampling_topk=1,
                                     include_prompt_in_result=False)  # fmt: skip
            return time.perf_counter() - begin

        count = options.tokens - options.given
        run(8)
        rows.append(
            (f"CTranslate2, {kind}", 1e3 * min((run(count) - run(8)) / (count - 8) for _ in range(options.rounds)))
        )
    return rows


def parse(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--given", type=int, default=8, help="tokens that are there at the beginning")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", help="a file for the rows of the table")
    parser.add_argument("--ctranslate2", action="store_true")
    return parser.parse_args(arguments)


def main():
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    options.threads = torch.get_num_threads()
    torch.manual_seed(0)
    model = Model(options.layers, options.width, options.heads, options.vocabulary).eval()
    tokens = torch.randint(0, options.vocabulary, (options.tokens,))
    others = measure_other(options, model, tokens) if options.ctranslate2 else []
    rows = measure(options, model, tokens)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows))
    print(f"{options.layers} layers of {options.width}, {options.threads} threads, {options.tokens} tokens")
    print(f"{'weights':<24}{'ms / token':>12}{'of float32':>12}{'MB':>8}{'error':>10}{'same token':>12}")
    for name, ms, size, error, same in rows:
        print(f"{name:<24}{ms:>12.2f}{ms / rows[0][1]:>12.2f}{size:>8.0f}{error:>10.4f}{same:>12.0%}")
    for name, ms in others:
        print(f"{name:<24}{ms:>12.2f}{ms / rows[0][1]:>12.2f}")


if __name__ == "__main__":
    main()
