// The schema by which this ledger's graph was made; no row: it is not here.
CYPHER 5
MATCH (marker:GraphmemLedger {ledger: $ledger})
RETURN marker.schema AS schema
