// Lists ids and sequence numbers of all memories, relations and entity states of the ledger or of some partitions.
CYPHER 5
CALL () {
  MATCH (n:Memory)
  WHERE n.ledger = $ledger AND n.id IS NOT NULL AND n.seq IS NOT NULL
  RETURN n.id AS id, n.seq AS seq, n.partition AS partition
  UNION ALL
  MATCH ()-[n:RELATES_TO]->()
  USING INDEX SEEK n:RELATES_TO(ledger, id)
  WHERE n.ledger = $ledger AND n.id IS NOT NULL
  RETURN n.id AS id, n.seq AS seq, n.partition AS partition
  UNION ALL
  MATCH (n:Entity)
  USING INDEX SEEK n:Entity(ledger, seq)
  WHERE n.ledger = $ledger AND n.seq IS NOT NULL
  RETURN n.id AS id, n.seq AS seq, n.partition AS partition
}
WITH id, seq, partition
WHERE $all OR partition IN $partitions
RETURN id, seq
