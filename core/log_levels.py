"""What --log_level may be, on both sides."""

import logging

LEVELS = {"error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO, "verbose": logging.DEBUG}
