"""Ask for clocks and power states while an application uses a device, and restore them afterwards.

Several instances in several processes share a device. If each set its clocks, the last would win, and the first to end
would take them from the others. So a perf profile only votes, before and after its loading, each inference and its end
(instances.py). The strongest of all live votes is in force, for each field on its own. Clocks outlive a process that is
killed, so a journal on the disk keeps what controls contained. The C runtime does all of that (native/src/power/); here
are the records, the profiles and their files.

Votes must cost an inference nothing. A vote that changes nothing makes no system call, and a hysteresis holds the start
vote over a row of inferences. A thread of the C runtime does later work. Profiles name corners, which are shares of a
device's own frequency range.

For clients of a target server the daemon votes, because its worker may be killed at any time. If something steers the
device, the name of the profile is part of a measurement's validity.
"""
