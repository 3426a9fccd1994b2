// Takes the ledger's lock until the end of the transaction: writers of a ledger take turns and cannot deadlock.
CYPHER 5
MATCH (marker:GraphmemLedger {ledger: $ledger})
SET marker.ledger = $ledger
RETURN marker.schema AS schema
