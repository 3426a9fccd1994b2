// Links abstractions to the memories that they were made of, rows of [memory, source]. Creates a placeholder for a source
// that has not been delivered yet.
CYPHER 5
UNWIND $rows AS row
MATCH (m:Memory {ledger: $ledger, id: row[0]})
MERGE (source:Memory {ledger: $ledger, id: row[1]})
CREATE (m)-[:ABSTRACTS {ledger: $ledger}]->(source)
