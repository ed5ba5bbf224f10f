"""Whatever touches real hardware: kernels, measurements, the hardware runner."""
