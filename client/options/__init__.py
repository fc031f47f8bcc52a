"""Define options for all of their places: command lines, config files, and Python.

An Option (option.py) says all of it once. Fields of records are options: tuning.py and config.py hold those of a
generation, run.py those of net-run, and viewer.py those of profile-viewer. shared.py, generator.py and farm.py hold
others. command_line.py, config_file.py and python.py make of them what users see. A new option of a generation is a
field there, a row in tests/client/options/test_options.py and its use; scripts/docs writes the rest. Nothing here loads
what a command needs to work, so that a wrong option costs little time.
"""
