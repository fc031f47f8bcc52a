"""Define every option that has more than one place: on command lines, in config files, and in Python.

An Option (option.py) says all of it once. Fields of records are options: tuning.py and generator.py hold those of a
generation. shared.py holds those of several commands. command_line.py, config_file.py and python.py make of them what
users see. Nothing here loads what a command needs to work, so that a wrong option costs little time.
"""
