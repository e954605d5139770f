"""Curves, histograms and pictures for TensorBoard, written by the package `tensorboard` where it is installed."""

from .writer import FileWriter, SummaryWriter  # noqa: F401

__all__ = ["FileWriter", "SummaryWriter"]
