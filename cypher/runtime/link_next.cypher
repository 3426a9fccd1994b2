// Links memories to their predecessors in their sessions, rows of [memory, predecessor]. Creates a placeholder for a
// predecessor that has not been delivered yet.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
MERGE (before:Memory {ledger: $ledger, id: row[1]})
CREATE (before)-[:NEXT {ledger: $ledger}]->(m)
