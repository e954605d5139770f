"""The example that serves models, small: answers are the model's own, requests that come together share a batch, what is
wrong with a request is said, and the client's table has a row for each number of callers. It needs aiohttp."""

import argparse
import asyncio
import importlib.util
import json
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("aiohttp")
import wick

SCRIPT = pathlib.Path(__file__).parent.parent.parent / "examples" / "serve.py"
SMALL = {"layers": 2, "width": 32, "heads": 2}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("serve", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def post(url, body):
    """(status, answer)"""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data)) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture(scope="module", params=[[], ["--compile"], ["--bfloat16"]], ids=["eager", "compiled", "bfloat16"])
def server(request, example, tmp_path_factory):
    """(address, models), with weights from files; the port is one that the system has given before."""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    folder, models, files = tmp_path_factory.mktemp("weights"), {}, []
    wick.manual_seed(1)
    for kind in example.SIZES:
        models[kind] = example.Model(kind, **SMALL).eval()
        path = folder / (f"{kind}.safetensors" if kind == "bert" else f"{kind}.pt")
        if kind == "bert":
            wick.safetensors.save_file(models[kind].state_dict(), str(path))
        else:
            wick.save(models[kind].state_dict(), path)
        files += [f"--{kind}", str(path)]
    sizes = [text for name, value in SMALL.items() for text in (f"--{name}", str(value))]
    command = [
        sys.executable,
        str(SCRIPT),
        "serve",
        "--port",
        str(port),
        "--wait",
        "20",
        *sizes,
        *files,
        *request.param,
    ]
    log = open(folder / "log.txt", "w")  # noqa: SIM115
    process = subprocess.Popen(command, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "log.txt").read_text()
            try:
                urllib.request.urlopen(f"{url}/status").close()
                break
            except OSError:
                time.sleep(0.1)
        yield url, models, "--bfloat16" in request.param
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def test_answers_are_the_models(server):
    url, models, rounded = server
    for tokens in ([5], [1, 2, 3], list(range(100, 140))):
        x, length = wick.tensor([tokens]), wick.tensor([len(tokens)])
        with wick.no_grad():
            vector, token = models["bert"](x, length)[0], models["gpt2"](x, length).item()
        status, answer = post(f"{url}/bert", {"tokens": tokens})
        assert status == 200
        limit = 0.05 if rounded else 1e-4
        wick.testing.assert_close(wick.tensor(answer["vector"]), vector, rtol=limit, atol=limit)
        status, answer = post(f"{url}/gpt2", {"tokens": tokens})
        assert status == 200 and (rounded or answer == {"token": token})


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff",
        [],
        {},
        {"tokens": []},
        {"tokens": [1.5]},
        {"tokens": [-1]},
        {"tokens": [10**6]},
        {"tokens": [1] * 5000},
    ],
)
def test_wrong_requests(server, body):
    status, answer = post(f"{server[0]}/bert", body)
    assert status == 400 and answer["error"]


def test_the_table_and_the_batches(server, tmp_path):
    url, out = server[0], tmp_path / "rows.json"
    before = json.load(urllib.request.urlopen(f"{url}/status"))["gpt2"]
    command = [sys.executable, str(SCRIPT), "client", "--url", url, "--requests", "24", "--tokens", "6"]
    done = subprocess.run([*command, "--concurrency", "1", "8", "--json", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(out.read_text())
    assert [row[0] for row in rows] == [1, 8] and done.stdout.count("\n| ") == 3
    for _, p50, p95, p99, rate in rows:
        assert 0 < p50 <= p95 <= p99 and rate > 0
    after = json.load(urllib.request.urlopen(f"{url}/status"))["gpt2"]
    requests, batches = (after[key] - before[key] for key in ("requests", "batches"))
    assert requests == 8 + 24 + 24 and batches < requests


def test_rows_of_a_batch_do_not_meet(example):
    """Padding changes no more than last bits."""
    wick.manual_seed(0)
    rows = [[3, 4, 5], [7], list(range(20))]
    for kind in example.SIZES:
        batcher = example.Batcher(example.Model(kind, **SMALL).eval(), 16, 0, None)
        together = batcher.compute(rows)
        for row, answer in zip(rows, together, strict=True):
            wick.testing.assert_close(wick.tensor(batcher.compute([row])[0]), wick.tensor(answer), rtol=1e-4, atol=1e-5)


def test_a_batch_that_fails_is_told_to_all_and_the_next_one_runs(example):
    async def run():
        def model(tokens, lengths):
            if tokens[0, 0] == 9:
                raise RuntimeError("not this")
            return lengths

        batcher = example.Batcher(model, 4, 0.01, None)
        task = asyncio.create_task(batcher.run())
        failed = await asyncio.gather(batcher.ask([9]), batcher.ask([9, 1]), return_exceptions=True)
        assert [str(error) for error in failed] == ["not this"] * 2
        assert await batcher.ask([1, 2, 3]) == 3
        task.cancel()

    asyncio.run(run())


def test_options_have_defaults(example):
    options = argparse.Namespace(gpt2=None, bert=None, batch=2, wait=1, bfloat16=False, compile=False, **SMALL)
    assert {route.resource.canonical for route in example.make_app(options).router.routes()} == {
        "/status",
        "/gpt2",
        "/bert",
    }
