"""Define plain records and rules that all rooms share: devices, launches, errors. It imports nothing of the other
rooms.
"""
