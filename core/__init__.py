"""Plain records and rules that all rooms share: devices, launches, errors. Imports nothing of the others."""
