// Removes the states of entities: their versions and SAME_AS links. Returns the ids of those that exist.
CYPHER 5
UNWIND $ids AS id
MATCH (e:Entity {ledger: $ledger, id: id})
OPTIONAL MATCH (e)-[link:SAME_AS]-()
DELETE link
REMOVE e.version
RETURN collect(DISTINCT e.id) AS entities
