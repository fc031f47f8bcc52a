"""Run one command on many devices: decide which device belongs to which job, give it work, and replace lost devices.

An engine (engine.py) carries byte strings to the hosts of devices and says which hosts exist: local_engine.py inside
one process, dask_engine.py between machines. The byte strings are the protocol's frames, checked on both sides
(frames.py). So a device of a farm is one more connection below a session (farm_connection.py), and tuning, building and
comparing know nothing about farms. An engine repeats nothing and queues nothing: a device has one batch at a time.

A host (hosts/device_host.py) holds one target, under a lock that no other worker of the machine can take. It checks the
target by building, verifying and timing a kernel. It belongs to one job at a time, and a job that falls silent loses
it.

pool.py gives devices to sessions. A session whose device is lost or leaves goes on with another device of the same
tier, sends again what that device needs, and repeats the batch. No variant is blamed for that, unless five devices are
lost with the same batch. When devices arrive, sessions that share a device get their own first, and then new sessions
begin.

A task is measured on one device of a tier, so twins.py compares devices by the time of their hosts' kernel. A device
that differs from its twins by more than 10 % for certain, three times in a row, is set apart.
"""
