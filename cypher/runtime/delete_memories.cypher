// Deletes memories. Returns the entities they mentioned, and the placeholders that they were linked to.
CYPHER 5
UNWIND $ids AS id
MATCH (m:Memory {ledger: $ledger, id: id})
OPTIONAL MATCH (m)-[:MENTIONS|DRAWN_FROM|REPLACES|COMPRESSES|ABSTRACTS|NEXT]-(x)
WITH collect(DISTINCT m) AS deleted,
     collect(DISTINCT CASE WHEN x:Entity THEN x.id END) AS entities,
     collect(DISTINCT CASE WHEN x:Memory AND x.seq IS NULL THEN x.id END) AS memories
FOREACH (m IN deleted | DETACH DELETE m)
RETURN entities, memories
