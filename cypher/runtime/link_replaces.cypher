// What memories retired, [memory, retired]; that may not have arrived yet.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
MERGE (retired:Memory {ledger: $ledger, id: row[1]})
CREATE (m)-[:REPLACES {ledger: $ledger}]->(retired)
