"""Networks of the benchmark, written out on `t`: PyTorch or wick. Each is a function of t; `inputs` makes a batch and its targets.

Images: (batch, 3, size, size) to 1000 classes. lstm: 32 sequences of 64 x 256. gpt2, bert_base: tokens (batch, length) of a
vocabulary of 50304, to as many classes at each place, with the sizes of GPT-2 124M and BERT base.
"""


def conv_norm(n, a, b, kernel, stride=1, groups=1, act=None):
    layers = [n.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False), n.BatchNorm2d(b)]
    return n.Sequential(*layers, *([act()] if act else []))


def resnet18(t):
    n = t.nn

    class Block(n.Module):
        def __init__(self, a, b, stride):
            super().__init__()
            self.first, self.second = conv_norm(n, a, b, 3, stride, act=n.ReLU), conv_norm(n, b, b, 3)
            self.shortcut = conv_norm(n, a, b, 1, stride) if stride > 1 or a != b else n.Identity()

        def forward(self, x):
            return t.relu(self.second(self.first(x)) + self.shortcut(x))

    layers, width = [conv_norm(n, 3, 64, 7, 2, act=n.ReLU), n.MaxPool2d(3, 2, 1)], 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(width, out, stride))
        width = out
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(512, 1000))


def resnet50(t):
    n = t.nn

    class Block(n.Module):
        def __init__(self, a, width, stride):
            super().__init__()
            first, middle = conv_norm(n, a, width, 1, act=n.ReLU), conv_norm(n, width, width, 3, stride, act=n.ReLU)
            self.layers = n.Sequential(first, middle, conv_norm(n, width, 4 * width, 1))
            self.shortcut = conv_norm(n, a, 4 * width, 1, stride) if a != 4 * width else n.Identity()

        def forward(self, x):
            return t.relu(self.layers(x) + self.shortcut(x))

    layers, width = [conv_norm(n, 3, 64, 7, 2, act=n.ReLU), n.MaxPool2d(3, 2, 1)], 64
    for out, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            layers.append(Block(width, out, 1 if k else first))
            width = 4 * out
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(2048, 1000))


def inverted(t, a, b, kernel, stride, wide, act, gate, squeeze):
    """Expansion, a depthwise convolution, squeeze and excitation, projection."""
    n = t.nn

    class Excite(n.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.down, self.up = (
                n.AdaptiveAvgPool2d(1),
                n.Conv2d(wide, squeeze, 1),
                n.Conv2d(squeeze, wide, 1),
            )
            self.act, self.gate = (act if gate is n.Sigmoid else n.ReLU)(), gate()

        def forward(self, x):
            return x * self.gate(self.up(self.act(self.down(self.pool(x)))))

    class Inverted(n.Module):
        def __init__(self):
            super().__init__()
            layers = [conv_norm(n, a, wide, 1, act=act)] if wide != a else []
            layers.append(conv_norm(n, wide, wide, kernel, stride, wide, act))
            layers += [Excite()] if squeeze else []
            self.layers, self.adds = n.Sequential(*layers, conv_norm(n, wide, b, 1)), stride == 1 and a == b

        def forward(self, x):
            return x + self.layers(x) if self.adds else self.layers(x)

    return Inverted()


def efficientnet_b0(t):
    n = t.nn
    layers, width = [conv_norm(n, 3, 32, 3, 2, act=n.SiLU)], 32
    for expand, kernel, first, out, count in ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
                                              (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)):  # fmt: skip
        for k in range(count):
            stride = 1 if k else first
            layers.append(inverted(t, width, out, kernel, stride, width * expand, n.SiLU, n.Sigmoid, width // 4))
            width = out
    layers.append(conv_norm(n, 320, 1280, 1, act=n.SiLU))
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(1280, 1000))


def mobilenet_v3(t):
    n = t.nn
    layers, width = [conv_norm(n, 3, 16, 3, 2, act=n.Hardswish)], 16
    rows = ((3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 24, 0, 2), (5, 120, 40, 32, 0, 1),
            (5, 120, 40, 32, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
            (3, 480, 112, 120, 1, 1), (3, 672, 112, 168, 1, 1), (5, 672, 160, 168, 1, 2), (5, 960, 160, 240, 1, 1),
            (5, 960, 160, 240, 1, 1))  # fmt: skip
    for kernel, wide, out, squeeze, hard, stride in rows:
        act = n.Hardswish if hard else n.ReLU
        layers.append(inverted(t, width, out, kernel, stride, wide, act, n.Hardsigmoid, squeeze))
        width = out
    layers += [conv_norm(n, 160, 960, 1, act=n.Hardswish), n.AdaptiveAvgPool2d(1), n.Flatten()]
    return n.Sequential(*layers, n.Linear(960, 1280), n.Hardswish(), n.Linear(1280, 1000))


def convnext_tiny(t):
    n = t.nn

    class Norm(n.LayerNorm):
        def forward(self, x):
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Block(n.Module):
        def __init__(self, width):
            super().__init__()
            self.conv, self.norm = n.Conv2d(width, width, 7, padding=3, groups=width), n.LayerNorm(width, eps=1e-6)
            self.up, self.down = n.Linear(width, 4 * width), n.Linear(4 * width, width)
            self.scale = n.Parameter(t.full((width,), 1e-2))

        def forward(self, x):
            y = self.norm(self.conv(x).permute(0, 2, 3, 1))
            return x + (self.down(t.nn.functional.gelu(self.up(y))) * self.scale).permute(0, 3, 1, 2)

    layers, width = [n.Conv2d(3, 96, 4, 4), Norm(96, eps=1e-6)], 96
    for count, out in ((3, 96), (3, 192), (9, 384), (3, 768)):
        if out != width:
            layers += [Norm(width, eps=1e-6), n.Conv2d(width, out, 2, 2)]
        layers += [Block(out) for _ in range(count)]
        width = out
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.LayerNorm(768), n.Linear(768, 1000))


def attention_of(t, width, causal):
    n = t.nn

    class Attention(n.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = n.Linear(width, 3 * width), n.Linear(width, width)

        def forward(self, x):
            b, s, _ = x.shape
            q, k, v = self.qkv(x).view(b, s, 3, width // 64, 64).permute(2, 0, 3, 1, 4).unbind(0)
            y = t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.out(y.transpose(1, 2).reshape(b, s, width))

    return Attention()


def transformer_block(t, width, causal=False, norm_first=True):
    n = t.nn

    class Block(n.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = n.LayerNorm(width), n.LayerNorm(width)
            self.attention = attention_of(t, width, causal)
            self.up, self.down = n.Linear(width, 4 * width), n.Linear(4 * width, width)

        def feed(self, x):
            return self.down(t.nn.functional.gelu(self.up(x)))

        def forward(self, x):
            if norm_first:
                x = x + self.attention(self.first(x))
                return x + self.feed(self.second(x))
            x = self.first(x + self.attention(x))
            return self.second(x + self.feed(x))

    return Block()


def vit(t, width, depth=12):
    n = t.nn

    class Net(n.Module):
        def __init__(self):
            super().__init__()
            self.patches = n.Conv2d(3, width, 16, 16)
            self.blocks = n.Sequential(*(transformer_block(t, width) for _ in range(depth)))
            self.norm, self.head = n.LayerNorm(width), n.Linear(width, 1000)
            self.token = n.Parameter(t.zeros(1, 1, width))

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = t.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
            return self.head(self.norm(self.blocks(x))[:, 0])

    return Net()


def vit_small(t):
    return vit(t, 384)


def vit_base(t):
    return vit(t, 768)


def language_model(t, causal, width=768, depth=12, length=1024):
    n = t.nn

    class Net(n.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = n.Embedding(VOCABULARY, width), n.Embedding(length, width)
            self.blocks = n.Sequential(*(transformer_block(t, width, causal, norm_first=causal) for _ in range(depth)))
            self.norm, self.head = n.LayerNorm(width), n.Linear(width, VOCABULARY, bias=False)

        def forward(self, x):
            y = self.tokens(x) + self.places(t.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(y))).flatten(0, 1)

    return Net()


def gpt2(t):
    return language_model(t, causal=True)


def bert_base(t):
    return language_model(t, causal=False, length=512)


def lstm(t):
    n = t.nn

    class Net(n.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = n.LSTM(256, 256, 2, batch_first=True), n.Linear(256, 1000)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    return Net()


VOCABULARY = 50304
LENGTHS = {"gpt2": 1024, "bert_base": 512}  # tokens of a sequence
IMAGES = (resnet18, resnet50, efficientnet_b0, mobilenet_v3, convnext_tiny, vit_small, vit_base)
NETWORKS = {f.__name__: f for f in (*IMAGES, lstm, gpt2, bert_base)}


def inputs(t, name, batch, size, device="cpu"):
    """A batch of random values, and integers that cross entropy takes with what the network gives for it."""
    if name in LENGTHS:
        tokens = t.randint(0, VOCABULARY, (batch, LENGTHS[name]), device=device)
        return tokens, t.randint(0, VOCABULARY, (tokens.numel(),), device=device)
    shape = (32, 64, 256) if name == "lstm" else (batch, 3, size, size)
    x = t.randn(shape, device=device)
    return x, t.arange(x.shape[0], device=device) * 7 % 1000
