"""SummaryWriter over the event files of the package `tensorboard`, which is imported when a writer is made.

In: tags, values, steps. Out: events in a file below the log folder. Tests: tests/python/test_tensorboard.py.
"""

import io
import os
import time


def _tensorboard():
    """The parts of the package that are used; an error that names it where it is not installed."""
    try:
        from tensorboard.compat import proto  # noqa: F401
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise ModuleNotFoundError("torch.utils.tensorboard writes by the package 'tensorboard': pip install tensorboard",
                                  name="tensorboard") from error  # fmt: skip
    return event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, EventFileWriter


def _array(value):
    """A tensor, number or sequence as a NumPy array."""
    import numpy

    detached = value.detach() if hasattr(value, "detach") else value
    return numpy.asarray(detached.cpu().numpy() if hasattr(detached, "cpu") else detached)


class FileWriter:
    """Events of one run, appended to one file of `log_dir`."""

    def __init__(self, log_dir, max_queue=10, flush_secs=120, filename_suffix=""):
        self._event, *_, writer = _tensorboard()
        self.event_writer = writer(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self):
        """The folder."""
        return self.event_writer.get_logdir()

    def add_summary(self, summary, global_step=None, walltime=None):
        """One event with the summary."""
        event = self._event.Event(summary=summary, wall_time=time.time() if walltime is None else walltime)
        if global_step is not None:
            event.step = int(global_step)
        self.event_writer.add_event(event)

    def flush(self):
        """What waits is in the file afterwards."""
        self.event_writer.flush()

    def close(self):
        """The file is complete."""
        self.event_writer.close()


class SummaryWriter:
    """Writes what a training run shows.

    writer = SummaryWriter("runs/first")
    writer.add_scalar("loss", loss, global_step=step)
    """

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        self._proto = _tensorboard()
        if not log_dir:
            import socket

            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S_") + socket.gethostname() + comment)
        self.log_dir = str(log_dir)
        self._file = (max_queue, flush_secs, filename_suffix)
        self.file_writer = self.all_writers = None
        self._get_file_writer()
        if purge_step is not None:
            self._purge(purge_step)

    def _purge(self, step):
        """Events from that step on, of a run that died, are not shown."""
        event = self._proto[0]
        self.file_writer.event_writer.add_event(event.Event(step=step, file_version="brain.Event:2"))
        session = event.SessionLog(status=event.SessionLog.START)
        self.file_writer.event_writer.add_event(event.Event(step=step, session_log=session))

    def _get_file_writer(self):
        if self.all_writers is None:
            self.file_writer = FileWriter(self.log_dir, *self._file)
            self.all_writers = {self.log_dir: self.file_writer}
        return self.file_writer

    def get_logdir(self):
        """The folder."""
        return self.log_dir

    def _add(self, value, step, walltime, writer=None):
        summary = self._proto[1].Summary(value=[value])
        (writer or self._get_file_writer()).add_summary(summary, step, walltime)

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        """One number: a point of the curve `tag`."""
        value = self._proto[1].Summary.Value(tag=tag, simple_value=float(_array(scalar_value).reshape(())))
        self._add(value, global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """A point of each of several curves in one plot, each in a folder of its own."""
        for tag, number in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag)
            self._get_file_writer()
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, *self._file)
            value = self._proto[1].Summary.Value(tag=main_tag, simple_value=float(_array(number).reshape(())))
            self._add(value, global_step, walltime, self.all_writers[folder])

    def add_histogram(self, tag, values, global_step=None, bins="auto", walltime=None, max_bins=None):
        """How the values are distributed."""
        import numpy

        flat = _array(values).astype(numpy.float64).reshape(-1)
        if flat.size == 0:
            raise ValueError("The input has no element.")
        if bins == "tensorflow":
            ends = [0.0, *(1e-12 * 1.1**k for k in range(774))]
            bins = [-b for b in ends[:0:-1]] + ends
        elif isinstance(bins, str) and max_bins:
            bins = min(max_bins, len(numpy.histogram_bin_edges(flat, bins)) - 1)
        counts, limits = numpy.histogram(flat, bins=bins)
        histogram = self._proto[1].HistogramProto(
            min=flat.min(), max=flat.max(), num=flat.size, sum=flat.sum(), sum_squares=flat @ flat,
            bucket_limit=limits[1:].tolist(), bucket=counts.tolist(),
        )  # fmt: skip
        self._add(self._proto[1].Summary.Value(tag=tag, histo=histogram), global_step, walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """A picture of bytes, or of floats in [0, 1]; `dataformats` says what its dimensions are."""
        self._add_picture(tag, _as_rows(_array(img_tensor), dataformats), global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Several pictures, side by side."""
        import numpy

        at = dataformats.upper().index("N")
        each = [
            _as_rows(image, dataformats.upper().replace("N", "")) for image in numpy.moveaxis(_array(img_tensor), at, 0)
        ]
        self._add_picture(tag, numpy.concatenate(each, 1), global_step, walltime)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """A figure of matplotlib, or a list of them."""
        import numpy

        pictures = []
        for f in figure if isinstance(figure, list) else [figure]:
            f.canvas.draw()
            pictures.append(numpy.asarray(f.canvas.buffer_rgba())[..., :3])
            if close:
                import matplotlib.pyplot

                matplotlib.pyplot.close(f)
        self._add_picture(tag, numpy.concatenate(pictures, 1), global_step, walltime)

    def _add_picture(self, tag, rows, step, walltime):
        """rows: (H, W, C) bytes."""
        from PIL import Image

        encoded = io.BytesIO()
        Image.fromarray(rows.squeeze(2) if rows.shape[2] == 1 else rows).save(encoded, "PNG")
        image = self._proto[1].Summary.Image(
            height=rows.shape[0], width=rows.shape[1], colorspace=rows.shape[2], encoded_image_string=encoded.getvalue()
        )
        self._add(self._proto[1].Summary.Value(tag=tag, image=image), step, walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """A text in Markdown."""
        _, summary, tensor, shape, _ = self._proto
        plugin = summary.SummaryMetadata.PluginData(plugin_name="text", content=b"")
        value = tensor.TensorProto(
            dtype="DT_STRING", string_val=[text_string.encode()],
            tensor_shape=shape.TensorShapeProto(dim=[shape.TensorShapeProto.Dim(size=1)]),
        )  # fmt: skip
        metadata = summary.SummaryMetadata(plugin_data=plugin)
        self._add(
            summary.Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=value), global_step, walltime
        )

    def __getattr__(self, name):
        if name in ("add_graph", "add_embedding", "add_video", "add_audio", "add_mesh", "add_hparams", "add_pr_curve"):
            raise NotImplementedError(f"SummaryWriter.{name} exists in PyTorch 2.13 but wick does not have it yet")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def flush(self):
        """What waits is in the files afterwards."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self):
        """The files are complete; what is added later goes into new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def _as_rows(image, layout):
    """An array with those dims (C may be missing) as bytes (H, W, C)."""
    import numpy

    layout = layout.upper()
    if image.ndim != len(layout) or set(layout) - set("HWC") or not {"H", "W"} <= set(layout):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {image.shape}, input_format: {layout}"
        )
    if "C" not in layout:
        image, layout = image[..., None], layout + "C"
    rows = image.transpose([layout.index(dim) for dim in "HWC"])
    return rows if rows.dtype == numpy.uint8 else (rows * 255).clip(0, 255).astype(numpy.uint8)
