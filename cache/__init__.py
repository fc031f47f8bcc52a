"""What was measured before: keys, tiers, records and the store."""

from gputune.cache.chain import PLACES, ChainRecord
from gputune.cache.files import CacheError, check_writable
from gputune.cache.key import KEY_VERSION, TaskKey, Validity, canonical_json
from gputune.cache.record import STATUSES, RecordError, TrialRecord, WinnerRecord
from gputune.cache.store import GenerationStart, PerformanceCache
from gputune.cache.summary import TaskSummary
from gputune.cache.tier import Tier, named, tier_of

__all__ = [
    "KEY_VERSION",
    "PLACES",
    "STATUSES",
    "CacheError",
    "ChainRecord",
    "GenerationStart",
    "PerformanceCache",
    "RecordError",
    "TaskKey",
    "TaskSummary",
    "Tier",
    "TrialRecord",
    "Validity",
    "WinnerRecord",
    "canonical_json",
    "check_writable",
    "named",
    "tier_of",
]
