"""torch.utils.tensorboard: what is written is what the package `tensorboard` reads; without it the error names it."""

import sys

import numpy
import pytest

import wick


def test_without_the_package(monkeypatch, tmp_path):
    from wick.utils.tensorboard import SummaryWriter

    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        SummaryWriter(tmp_path)


def test_pictures_as_rows_of_bytes():
    from wick.utils.tensorboard.writer import _as_rows

    picture = numpy.linspace(0, 1, 3 * 2 * 4).reshape(3, 2, 4)
    rows = _as_rows(picture, "chw")
    assert rows.shape == (2, 4, 3) and rows.dtype == numpy.uint8 and rows[0, 0, 0] == 0 and rows[1, 3, 2] == 255
    assert _as_rows(picture[0], "HW").shape == (2, 4, 1)
    with pytest.raises(AssertionError, match="input format are different"):
        _as_rows(picture, "HW")


def test_what_is_written_can_be_read(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from wick.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", wick.tensor(0.5) * step, step)
        writer.add_histogram("weights", wick.arange(10.0), 1, bins=5)
        writer.add_text("note", "first")
        with pytest.raises(NotImplementedError, match="add_graph exists in PyTorch 2.13"):
            writer.add_graph(None)
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("loss")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    histogram = read.Histograms("weights")[0].histogram_value
    assert histogram.num == 10 and histogram.sum == 45 and list(histogram.bucket) == [2] * 5
