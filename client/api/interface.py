"""Offer `gputune.tune` and `gputune.check`, whose arguments are options: interface.pyi has their signatures."""

from gputune.client.api import checking, tuning
from gputune.client.options.python import CHECK, TUNE, in_python

tune = in_python(TUNE)(tuning.tune)
check = in_python(CHECK, first=2)(checking.check)
