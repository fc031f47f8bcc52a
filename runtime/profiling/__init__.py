"""Record where the time of inferences goes: what runs while they run, and the log that is written.

The C runtime puts stamps around the steps of an inference (give memory, launch, finish, give back, take), so one piece
of code records arrays, handles, groups and pipelines. simulated.py does so for devices that compute nothing.
profiler.py lets recorded and unrecorded inferences take turns, so a log says itself what recording has changed.
clocks.py leads from the device's clock to the host's. The log has stamps, not conclusions: client/viewer/account.py
divides the time when the log is read.
"""
