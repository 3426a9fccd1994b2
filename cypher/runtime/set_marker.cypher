// Marks this ledger's graph as existing, with its schema version.
CYPHER 5
MERGE (marker:GraphmemLedger {ledger: $ledger})
SET marker.schema = $schema
