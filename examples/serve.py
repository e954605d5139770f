"""Serves a model of GPT-2's size and one of BERT's over HTTP, requests that come together as one batch.

    pip install -r examples/requirements.txt
    python examples/serve.py serve [--port 8000] [--bfloat16] [--compile] [--gpt2 FILE --bert FILE]
    python examples/serve.py client [--model gpt2] [--concurrency 1 4 16]        # prints a table of latencies

    POST /gpt2 {"tokens": [15496, 995]}    -> {"token": 11}                 the most likely next one
    POST /bert {"tokens": [101, 2054]}     -> {"vector": [0.1, ...]}        the mean over the tokens

Weights are made up unless a file has them, of torch.save or safetensors, with the names of Model.state_dict().
"""

import argparse
import asyncio
import concurrent.futures
import json
import random
import time

from aiohttp import ClientSession, web

import wick as torch
from wick import nn
from wick.nn import functional as F

SIZES = {"gpt2": (50257, 1024), "bert": (30522, 512)}  # vocabulary, context


class Block(nn.Module):
    """Attention and two linear layers, normalised before (GPT-2) or after (BERT). x (B, T, width)."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def attend(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None if self.causal else mask, is_causal=self.causal)
        return self.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)))

    def expand(self, x):
        return self.dropout(self.down(F.gelu(self.up(x))))

    def forward(self, x, mask):
        if self.causal:
            x = x + self.attend(self.norm_1(x), mask)
            return x + self.expand(self.norm_2(x))
        x = self.norm_1(x + self.attend(x, mask))
        return self.norm_2(x + self.expand(x))


class Model(nn.Module):
    """Tokens (B, T), each row's first `lengths` (B) of which count -> GPT-2: the next token (B); BERT: vectors (B, width)."""

    def __init__(self, kind, layers=12, width=768, heads=12):
        super().__init__()
        vocabulary, context = SIZES[kind]
        self.causal = kind == "gpt2"
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, self.causal) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False) if self.causal else None

    def forward(self, tokens, lengths):
        inside = torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        x = x if self.causal else self.norm(x)
        for block in self.blocks:
            x = block(x, inside[:, None, None, :])
        if self.causal:
            last = x[torch.arange(len(x)), lengths - 1]
            return self.head(self.norm(last)).argmax(dim=1)
        return (x * inside.unsqueeze(2)).sum(dim=1) / lengths.unsqueeze(1)


class Batcher:
    """Runs a model on what waits, at most `most` requests at once. The first of a batch waits `seconds` for others."""

    def __init__(self, model, most, seconds, executor):
        self.model, self.most, self.seconds, self.executor = model, most, seconds, executor
        self.waiting, self.batches, self.requests = asyncio.Queue(), 0, 0

    async def ask(self, tokens):
        answer = asyncio.get_running_loop().create_future()
        await self.waiting.put((tokens, answer))
        return await answer

    async def collect(self):
        batch = [await self.waiting.get()]
        end = time.monotonic() + self.seconds
        while len(batch) < self.most:
            try:
                batch.append(await asyncio.wait_for(self.waiting.get(), max(0, end - time.monotonic())))
            except asyncio.TimeoutError:
                break
        return [request for request in batch if not request[1].done()]  # who has gone away needs no answer

    def compute(self, rows):
        lengths = [len(row) for row in rows]
        padded = [row + [0] * (max(lengths) - len(row)) for row in rows]
        with torch.no_grad():
            return self.model(torch.tensor(padded), torch.tensor(lengths)).tolist()

    async def run(self):
        loop = asyncio.get_running_loop()
        while True:
            batch = await self.collect()
            if not batch:
                continue
            try:
                answers = await loop.run_in_executor(self.executor, self.compute, [tokens for tokens, _ in batch])
            except Exception as error:  # the next batch may be right
                answers = [error] * len(batch)
            self.batches, self.requests = self.batches + 1, self.requests + len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    (future.set_exception if isinstance(answer, Exception) else future.set_result)(answer)


def read_tokens(body, vocabulary, context):
    """The tokens of a request; ValueError says what is wrong."""
    tokens = body.get("tokens") if isinstance(body, dict) else None
    if not isinstance(tokens, list) or not 0 < len(tokens) <= context:
        raise ValueError(f"tokens is a list of 1 to {context} numbers")
    if not all(type(token) is int and 0 <= token < vocabulary for token in tokens):
        raise ValueError(f"a token is a number from 0 to {vocabulary - 1}")
    return tokens


def route(kind, batcher):
    async def answer(request):
        try:
            tokens = read_tokens(await request.json(), *SIZES[kind])
        except (ValueError, UnicodeDecodeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        try:
            value = await batcher.ask(tokens)
        except Exception as error:
            return web.json_response({"error": str(error)}, status=500)
        return web.json_response({"token" if kind == "gpt2" else "vector": value})

    return answer


def load(kind, file, options):
    model = Model(kind, options.layers, options.width, options.heads)
    if file:
        model.load_state_dict(torch.safetensors.load_file(file) if file.endswith(".safetensors") else torch.load(file))
    model = torch.optimize(model, dtype=torch.bfloat16 if options.bfloat16 else None, inplace=True)
    return torch.compile(model) if options.compile else model


def make_app(options):
    torch.manual_seed(0)
    executor = concurrent.futures.ThreadPoolExecutor(1)  # a product uses all cores already
    batchers = {
        kind: Batcher(load(kind, getattr(options, kind), options), options.batch, options.wait / 1e3, executor)
        for kind in SIZES
    }
    app = web.Application()

    async def running(app):
        tasks = [asyncio.create_task(batcher.run()) for batcher in batchers.values()]
        yield
        for task in tasks:
            task.cancel()
        executor.shutdown(wait=False)

    async def status(request):
        return web.json_response({k: {"requests": b.requests, "batches": b.batches} for k, b in batchers.items()})

    app.cleanup_ctx.append(running)
    app.router.add_get("/status", status)
    for kind, batcher in batchers.items():
        app.router.add_post(f"/{kind}", route(kind, batcher))
    return app


async def measure(url, bodies, concurrency):
    """(seconds in all, sorted seconds of each request), `concurrency` of which are under way at any time."""
    waiting, times = iter(bodies), []

    async def caller(session):
        for body in waiting:
            start = time.perf_counter()
            async with session.post(url, json=body) as response:
                await response.read()
                response.raise_for_status()
            times.append(time.perf_counter() - start)

    async with ClientSession() as session:
        start = time.perf_counter()
        await asyncio.gather(*(caller(session) for _ in range(concurrency)))
        return time.perf_counter() - start, sorted(times)


def client(options):
    random.seed(0)
    bodies = [
        {"tokens": random.choices(range(SIZES[options.model][0]), k=random.randint(1, options.tokens))}
        for _ in range(options.requests)
    ]
    url = f"{options.url}/{options.model}"
    asyncio.run(measure(url, bodies[:8], 2))  # warm
    rows = []
    print("| at once | p50 ms | p95 ms | p99 ms | requests/s |\n| --- | --- | --- | --- | --- |")
    for concurrency in options.concurrency:
        seconds, times = asyncio.run(measure(url, bodies, concurrency))
        parts = [times[min(int(len(times) * part), len(times) - 1)] * 1e3 for part in (0.5, 0.95, 0.99)]
        rows.append([concurrency, *parts, len(times) / seconds])
        print(f"| {concurrency} | " + " | ".join(f"{value:.1f}" for value in rows[-1][1:]) + " |", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    serve = modes.add_parser("serve")
    for kind in SIZES:
        serve.add_argument(f"--{kind}", help="a file with its weights")
    for name, default in dict(port=8000, layers=12, width=768, heads=12, batch=16).items():
        serve.add_argument(f"--{name}", type=int, default=default)
    serve.add_argument("--wait", type=float, default=2, help="ms that the first request of a batch waits for others")
    serve.add_argument("--threads", type=int)
    serve.add_argument("--bfloat16", action="store_true")
    serve.add_argument("--compile", action="store_true")
    asking = modes.add_parser("client")
    asking.add_argument("--url", default="http://127.0.0.1:8000")
    asking.add_argument("--model", choices=SIZES, default="gpt2")
    asking.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    asking.add_argument("--requests", type=int, default=100)
    asking.add_argument("--tokens", type=int, default=32, help="of a request, at most")
    asking.add_argument("--json")
    options = parser.parse_args()
    if options.mode == "client":
        client(options)
        return
    if options.threads:
        torch.set_num_threads(options.threads)
    web.run_app(make_app(options), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
