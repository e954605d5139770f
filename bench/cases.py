"""What the tables of docs/benchmarks.md hold: (title, case, bar). Cases are those of `python -m wick.bench`; the bar is the highest
ratio that the road allows, or None."""

EAGER = [  # wick over PyTorch, both eager
    ("a + b on 8 floats", "add", 0.3),
    ("a + b on 8 floats, with grad", "add:grad=1", 0.3),
    ("8 x Linear(64), batch 16", "linears", 0.3),
    ("MLP step, 6 x 128, batch 32", "mlp_step", 0.3),
    ("LSTM step, 32 x hidden 32", "lstm_step", 0.3),
    *((f"GEMM {n} cubed", f"gemm:m={n},n={n},k={n}", 1.1) for n in (256, 512, 1024, 2048)),
    ("GEMM 8 x 4096 x 4096", "gemm:m=8,n=4096,k=4096", 0.8),
    ("GEMM 32 x 128 x 128", "gemm:m=32,n=128,k=128", 0.8),
    ("softmax 4096 x 4096", "softmax:rows=4096", 0.9),
    ("layer norm 16384 x 768", "layer_norm:rows=16384,columns=768", 0.9),
    ("GELU 16 M", "gelu:rows=4096", 0.9),
    ("cross-entropy 4096 x 4096", "cross_entropy:rows=4096", 0.9),
    ("dropout 16 M", "dropout:rows=4096", 0.9),
    ("sum 16 M", "sum:rows=4096", 0.9),
    ("cumsum 4096 x 4096", "cumsum:rows=4096", 0.9),
    ("transpose copy 4096 x 4096", "transpose:rows=4096", 0.9),
    ("AdamW, 10 M parameters", "adamw:parameters=10,size=1000", 0.9),
    ("char-GPT training step", "chargpt_step", 1.0),
]

COMPILED = [  # wick compiled over the faster of PyTorch eager and torch.compile
    ("char-GPT training step", "chargpt_step", 0.75),
    ("MLP step, 6 x 128, batch 32", "mlp_step", 0.3),
    ("LSTM step, 32 x hidden 32", "lstm_step", 0.2),
    ("call of a function of two operators", "two_op_call", None),  # the road's bar is 0.1 of torch.compile's
]

BANDWIDTH = [  # compiled, out of cache; what part of the machine's copy bandwidth is reached
    ("softmax", "softmax", None),
    ("layer norm", "layer_norm", None),
    ("RMS norm", "rms_norm", None),
    ("GELU + bias", "gelu_bias", None),
    ("cross-entropy", "cross_entropy", None),
    ("dropout + add", "dropout_add", None),
    ("AdamW", "adamw", None),
]

COLD = [  # empty caches: wick's first compiled call over its eager call
    ("function of two operators", "two_op_call", None),
    ("MLP step, 6 x 128, batch 32", "mlp_step", 1.5),
    ("char-GPT training step", "chargpt_step", 1.5),
    ("GPT step, 12 layers of 768", "gpt_step", 1.5),
]

MEMORY = [  # peak of the step: wick compiled over PyTorch eager
    ("char-GPT training step", "chargpt_step", 0.8),
    ("MLP step, 6 x 128, batch 32", "mlp_step", 0.8),
    ("GPT step, 12 layers of 768", "gpt_step", 0.8),
]

CAPTURE = [  # functions of capture.py: wick over PyTorch
    ("call of a captured two-op function, backend at once", "captured_call", 0.1),
    ("the two operators, eager", "eager_call", None),
    ("plain Python between captured calls, over plain alone", "plain_between", None),
    ("capture of char-GPT's training step", "capture_chargpt", 0.05),
    ("captured call of 500 idle modules", "guards_of_500_modules", None),
]
