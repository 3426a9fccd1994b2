// How many memories there are, not counting those that are only referred to so far.
CYPHER 5
MATCH (marker:GraphmemLedger {ledger: $ledger})
RETURN marker.schema AS schema, COUNT {
  MATCH (n:Memory)
  WHERE n.ledger = $ledger AND n.id IS NOT NULL AND n.version IS NOT NULL
} AS memories
