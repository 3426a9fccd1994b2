// Counts the memories, without placeholders: nodes that others refer to but that have not been delivered yet.
CYPHER 5
MATCH (marker:GraphmemLedger {ledger: $ledger})
RETURN marker.schema AS schema, COUNT {
  MATCH (n:Memory)
  WHERE n.ledger = $ledger AND n.id IS NOT NULL AND n.seq IS NOT NULL
} AS memories
