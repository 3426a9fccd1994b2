// Deletes a ledger's entities with their edges, chunk by chunk. If it is interrupted, the next run continues.
CYPHER 5
MATCH (n:Entity)
USING INDEX SEEK n:Entity(ledger, id)
WHERE n.ledger = $ledger AND n.id IS NOT NULL
CALL (n) {
  DETACH DELETE n
} IN TRANSACTIONS OF $chunk ROWS
