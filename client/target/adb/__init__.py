"""A target server on a phone or board behind adb."""
