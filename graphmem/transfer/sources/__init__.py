"""Taking over what other memories hold: their data as records, which the import takes like any others."""
