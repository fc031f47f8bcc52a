"""Remember what was measured: keys, tiers, records and the store."""

from gputune.cache.file import CacheError, cache_files, check_writable, with_companions
from gputune.cache.key import KEY_VERSION, TaskKey, Validity
from gputune.cache.lookup import TaskSummary
from gputune.cache.record import PLACES, ChainRecord, RecordError, TrialRecord, WinnerRecord
from gputune.cache.store import GenerationStart, PerformanceCache
from gputune.core.json_text import canonical_json
from gputune.core.tier import Tier, named, tier_of

__all__ = [
    "KEY_VERSION",
    "PLACES",
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
    "cache_files",
    "canonical_json",
    "check_writable",
    "named",
    "tier_of",
    "with_companions",
]
