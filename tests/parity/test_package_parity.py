"""Packages that PyTorch wrote are read here, and the other way round."""

import io

import pytest
from compare import torch

import wick

package = pytest.importorskip("torch.package")


def written(library, model):
    file = io.BytesIO()
    with library.package.PackageExporter(file) as exporter:
        exporter.save_source_string("pack.tools", "import math\n\ndef twice(x):\n    return x * 2\n")
        exporter.save_pickle("model", "model.pkl", {"model": model, "list": [1, "a"]})
        exporter.save_text("files", "text", "hello")
    file.seek(0)
    return file


@pytest.mark.parametrize("writer, reader", [(torch, wick), (wick, torch)])
def test_one_reads_what_the_other_wrote(writer, reader):
    model = writer.nn.Sequential(writer.nn.Linear(2, 3), writer.nn.ReLU())
    found = reader.package.PackageImporter(written(writer, model))
    loaded = found.load_pickle("model", "model.pkl")
    assert loaded["list"] == [1, "a"] and found.load_text("files", "text") == "hello"
    assert loaded["model"][0].weight.tolist() == model[0].weight.tolist()
    assert loaded["model"](reader.ones(1, 2)).shape == (1, 3)
    assert found.import_module("pack.tools").twice(4) == 8
