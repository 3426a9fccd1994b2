// Takes the ledger's lock until the end of the transaction: one writer at a time, so that none can deadlock.
CYPHER 5
MATCH (marker:GraphmemLedger {ledger: $ledger})
SET marker.ledger = $ledger
RETURN marker.schema AS schema
