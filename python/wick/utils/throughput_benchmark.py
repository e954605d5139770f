"""torch.utils.throughput_benchmark: see _core_objects.ThroughputBenchmark."""

from .._core_objects import BenchmarkConfig, BenchmarkExecutionStats, ThroughputBenchmark

__all__ = ["BenchmarkConfig", "BenchmarkExecutionStats", "ThroughputBenchmark"]
