// Deletes the links of memories whose state has changed: MENTIONS, DRAWN_FROM, REPLACES, COMPRESSES, ABSTRACTS, and
// NEXT from their predecessors. Returns the entities and placeholders at the other ends.
CYPHER 5
UNWIND $ids AS id
MATCH (m:Memory {ledger: $ledger, id: id})
CALL (m) {
  MATCH (m)-[r:MENTIONS|DRAWN_FROM|REPLACES|COMPRESSES|ABSTRACTS]->(x)
  RETURN r, x
  UNION ALL
  MATCH (m)<-[r:NEXT]-(x)
  RETURN r, x
}
DELETE r
RETURN collect(DISTINCT CASE WHEN x:Entity THEN x.id END) AS entities,
       collect(DISTINCT CASE WHEN x:Memory AND x.seq IS NULL THEN x.id END) AS memories
