"""Models of the built-in cases, written against `torch`, wick or PyTorch, which they are given.

They have the shapes of the programs in the repository's examples/, which an installed wick does not bring along.
"""


def make_gpt(torch, vocabulary, context, width, layers, heads):
    """A GPT: characters (B, T) -> logits (B, T, vocabulary); layer norm first, learned positions, no dropout."""
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            B, T, C = x.shape
            parts = self.qkv(x).split(C, dim=2)
            q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in parts)  # (B, H, T, D)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).contiguous().view(B, T, C))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, characters):
            positions = torch.arange(characters.shape[1])
            return self.head(self.norm(self.blocks(self.token(characters) + self.position(positions))))

    return GPT()


def make_mlp(torch, width, layers):
    """`layers` linear layers of one width with ReLU between: (B, width) -> (B, width)."""
    parts = [torch.nn.Linear(width, width) if k % 2 == 0 else torch.nn.ReLU() for k in range(2 * layers - 1)]
    return torch.nn.Sequential(*parts)


def make_lstm(torch, symbols, hidden):
    """An LSTM cell written by hand and stepped in Python: symbols (B, T) -> logits (B, symbols) of the first one."""
    nn = torch.nn

    class Recall(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(symbols, hidden), nn.Linear(hidden, symbols)
            self.x, self.h = nn.Linear(hidden, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)

        def forward(self, x):
            h = c = torch.zeros(x.shape[0], hidden)
            for t in range(x.shape[1]):
                i, f, g, o = (self.x(self.embedding(x[:, t])) + self.h(h)).chunk(4, dim=1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
            return self.head(h)

    return Recall()
