// Returns the schema version of this ledger's graph; no row if the graph does not exist.
CYPHER 5
MATCH (marker:GraphmemLedger {ledger: $ledger})
RETURN marker.schema AS schema
