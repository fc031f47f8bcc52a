"""Run on the device: compile, measure and execute kernels for a host, and survive what kernels and drivers do.

A target server is a daemon and a worker process. The daemon (daemon.py) speaks with clients, holds all that they own
(sessions/) and never touches OpenCL. The worker (worker/) has the device open and holds copies, put there when a
request first names them. So a worker that is started again needs nothing but the next request.

The worker writes each step on a page of memory that both share (worker/heartbeat_page.py): what it does, with which
variant, until when. This wakes no process, so it does not disturb a measurement, and it outlives the worker.
workers/watchdog.py kills a worker that misses a deadline, workers/supervisor.py starts the next, and
workers/crash_recovery.py decides which variant is to blame.

One request at a time has the device (clients/fair_queue.py). Requests that only compile are the exception:
workers/pool.py spreads them over further workers on CPU devices. Requests that need no device (ping, status, uploads,
cancel) are answered where they arrive. Nothing but the hello is answered before the token is known to be right
(clients/admission.py).

Nothing is compiled next to a measurement on a CPU device, where it would disturb. There, a second process compiles half
of each batch before it is timed (workers/compiler.py). Elsewhere a second worker builds the programs of waiting
requests meanwhile. Whatever fails there, the first worker builds by itself.
"""
