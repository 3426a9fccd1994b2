// Says that this ledger's graph is here, and by which schema.
CYPHER 5
MERGE (marker:GraphmemLedger {ledger: $ledger})
SET marker.schema = $schema
