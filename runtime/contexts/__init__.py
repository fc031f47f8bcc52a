"""Run contexts by the C runtime: devices, executors and groups with the interface that applications know."""
