"""What is measured: each case is a function that prepares data with `torch` (wick or PyTorch) and returns what to time.

(name, bar, prepare): the bar is the highest ratio of wick's time to PyTorch's that the road allows.
"""


def _mlp(torch, batch=32, width=128, layers=6):
    nn = torch.nn
    parts = [nn.Linear(width, width) if i % 2 == 0 else nn.ReLU() for i in range(2 * layers - 1)]
    model = nn.Sequential(*parts)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=1e-6, momentum=0.9
    )  # a step that learns nothing: gradients stay away from denormals
    x, y = torch.randn(batch, width), torch.randint(width, (batch,))

    def step():
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _lstm(torch):
    import train_lstm

    model = train_lstm.Recall(8, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)
    x = torch.randint(8, (16, 32))

    def step():
        loss = torch.nn.functional.cross_entropy(model(x), x[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _chargpt(torch):
    import train_chargpt

    model = train_chargpt.CharGPT(96, 128, 192, 6, 6, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-7, weight_decay=0.1)
    x, y = torch.randint(96, (8, 128)), torch.randint(96, (8, 128))

    def step():
        loss = torch.nn.functional.cross_entropy(model(x).view(-1, 96), y.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _add(torch, grad):
    a, b = torch.randn(8).requires_grad_(grad), torch.randn(8)
    return lambda: a + b


def _linears(torch):
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))
    x = torch.randn(16, 64)
    return lambda: model(x)


def _gemm(torch, m, n, k):
    a, b = torch.randn(m, k), torch.randn(k, n)
    return lambda: torch.mm(a, b)


def _unary(torch, shape, f):
    x = torch.randn(*shape)
    return lambda: f(x)


def _adamw(torch):
    parameters = [torch.randn(1000, 1000).requires_grad_() for _ in range(10)]
    for p in parameters:
        p.grad = torch.randn(1000, 1000)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    optimizer.step()
    return optimizer.step


def _cross_entropy(torch):
    x, y = torch.randn(4096, 4096), torch.randint(4096, (4096,))
    return lambda: torch.nn.functional.cross_entropy(x, y)


def _layer_norm(torch):
    x, w, b = torch.randn(16384, 768), torch.randn(768), torch.randn(768)
    return lambda: torch.nn.functional.layer_norm(x, (768,), w, b)


BIG = (4096, 4096)
CASES = [
    ("a + b on 8 floats", 0.3, lambda t: _add(t, False)),
    ("a + b on 8 floats, with grad", 0.3, lambda t: _add(t, True)),
    ("8 x Linear(64), batch 16", 0.3, _linears),
    ("MLP step, 6 x 128, batch 32", 0.3, _mlp),
    ("LSTM step, 32 x hidden 32", 0.3, _lstm),
    *((f"GEMM {n} cubed", 1.1, lambda t, n=n: _gemm(t, n, n, n)) for n in (256, 512, 1024, 2048)),
    ("GEMM 8 x 4096 x 4096", 0.8, lambda t: _gemm(t, 8, 4096, 4096)),
    ("GEMM 32 x 128 x 128", 0.8, lambda t: _gemm(t, 32, 128, 128)),
    ("softmax 4096 x 4096", 0.9, lambda t: _unary(t, BIG, lambda x: t.softmax(x, -1))),
    ("layer norm 16384 x 768", 0.9, _layer_norm),
    ("GELU 16 M", 0.9, lambda t: _unary(t, BIG, t.nn.functional.gelu)),
    ("cross-entropy 4096 x 4096", 0.9, _cross_entropy),
    ("dropout 16 M", 0.9, lambda t: _unary(t, BIG, lambda x: t.nn.functional.dropout(x, 0.1))),
    ("sum 16 M", 0.9, lambda t: _unary(t, BIG, lambda x: x.sum())),
    ("cumsum 4096 x 4096", 0.9, lambda t: _unary(t, BIG, lambda x: x.cumsum(-1))),
    ("transpose copy 4096 x 4096", 0.9, lambda t: _unary(t, BIG, lambda x: x.t().contiguous())),
    ("AdamW, 10 M parameters", 0.9, _adamw),
    ("char-GPT training step", 1.0, _chargpt),
]
