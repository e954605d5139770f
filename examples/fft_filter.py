"""A low-pass filter by fft: a tone under noise is heard again, and a long filter costs as much as a short one.

A PyTorch program, run unchanged by either `python -m wick examples/fft_filter.py` or, with PyTorch, plain `python`.
"""

import argparse
import math

import torch


def convolve(signal, taps):
    """signal (N) with taps (K), as long as the signal and not shifted (K is odd)."""
    size = len(signal) + len(taps) - 1
    product = torch.fft.rfft(signal, size) * torch.fft.rfft(taps, size)
    begin = len(taps) // 2
    return torch.fft.irfft(product, size)[begin : begin + len(signal)]


def low_pass(cutoff, rate, taps):
    """A windowed sinc (taps): frequencies below the cutoff pass."""
    t = torch.arange(taps) - taps // 2
    kernel = torch.sinc(2 * cutoff / rate * t) * torch.hann_window(taps, periodic=False)
    return kernel / kernel.sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rate", type=int, default=16000)
    parser.add_argument("--taps", type=int, default=1001)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    t = torch.arange(int(options.seconds * options.rate)) / options.rate
    tone = torch.sin(2 * math.pi * 440 * t)
    heard = tone + torch.randn(len(t))
    filtered = convolve(heard, low_pass(600, options.rate, options.taps))
    before, after = (10 * math.log10((tone.var() / (x - tone).var()).item()) for x in (heard, filtered))
    peak = torch.fft.rfft(filtered).abs().argmax().item() * options.rate / len(t)
    print(f"signal to noise {before:.2f} dB -> {after:.2f} dB, peak at {peak:.1f} Hz")


if __name__ == "__main__":
    main()
