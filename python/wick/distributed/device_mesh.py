"""torch.distributed.device_mesh: devices as a grid; needs process groups."""

from . import DeviceMesh, init_device_mesh  # noqa: F401
