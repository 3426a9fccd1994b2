// Makes the ends of relations whose memories have not arrived yet.
CYPHER 5
UNWIND $rows AS row
MERGE (e:Entity {ledger: $ledger, id: row.id})
ON CREATE SET e.partition = row.partition, e.key = row.key, e.name = row.name
