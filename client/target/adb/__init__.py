"""Run a target server on a phone or board that adb reaches."""
