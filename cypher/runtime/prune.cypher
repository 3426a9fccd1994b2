// Deletes entities without a state, mention or relation, and placeholders that nothing refers to any more.
CYPHER 5
CALL () {
  UNWIND $entities AS id
  MATCH (e:Entity {ledger: $ledger, id: id})
  WHERE e.seq IS NULL AND NOT EXISTS { (e)<-[:MENTIONS]-() } AND NOT EXISTS { (e)-[:RELATES_TO]-() }
  RETURN e AS unused
  UNION
  UNWIND $memories AS id
  MATCH (m:Memory {ledger: $ledger, id: id})
  WHERE m.seq IS NULL AND NOT EXISTS { (m)-[:NEXT|DRAWN_FROM|REPLACES|COMPRESSES|ABSTRACTS]-() }
  RETURN m AS unused
}
DETACH DELETE unused
