// What comes before memories in their sessions, [memory, the one before]; that may not have arrived yet.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
MERGE (before:Memory {ledger: $ledger, id: row[1]})
CREATE (before)-[:NEXT {ledger: $ledger}]->(m)
