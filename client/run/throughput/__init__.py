"""Run contexts in parallel for a time, and report their rates, percentiles, wrong results and energy."""
