// Links memories to the entities they mention, rows of [memory, [[entity, kind, rank], ...]]. A mention without a rank
// links nothing in a search and is in no index.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
UNWIND row[1] AS mention
MATCH (e:Entity {ledger: $ledger, id: mention[0]})
CREATE (m)-[:MENTIONS {
  ledger: $ledger, kind: mention[1], rank: mention[2],
  ekey: CASE WHEN mention[2] IS NOT NULL THEN mention[0] END
}]->(e)
