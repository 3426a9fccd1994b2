// Removes the states of entities: their `seq` and SAME_AS links. Returns the ids of those that exist.
CYPHER 5
UNWIND $ids AS id
MATCH (e:Entity {ledger: $ledger, id: id})
OPTIONAL MATCH (e)-[link:SAME_AS]-()
DELETE link
REMOVE e.seq
RETURN collect(DISTINCT e.id) AS entities
