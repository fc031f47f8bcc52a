"""What a profile means: the dominant path, the roofline, findings in words, and how it differs from another one."""
