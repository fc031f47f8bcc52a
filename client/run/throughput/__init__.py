"""Throughput runs: contexts beside each other for a time, their rates, percentiles, wrong results and energy."""
