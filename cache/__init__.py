"""What was measured before: keys, tiers, records and the store."""
