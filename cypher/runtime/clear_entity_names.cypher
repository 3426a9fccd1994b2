// Forgets what is said of entities beyond the texts. Returns those that were here.
CYPHER 5
UNWIND $ids AS id
MATCH (e:Entity {ledger: $ledger, id: id})
OPTIONAL MATCH (e)-[link:SAME_AS]-()
DELETE link
REMOVE e.version
RETURN collect(DISTINCT e.id) AS entities
