// Creates the endpoints of relations, for those whose memories have not been delivered yet.
CYPHER 5
UNWIND $rows AS row
MERGE (e:Entity {ledger: $ledger, id: row.id})
ON CREATE SET e.partition = row.partition, e.key = row.key, e.name = row.name
