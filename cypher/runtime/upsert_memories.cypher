// Writes memories, unless the stored ones are newer (`seq`). Returns the ids of those written, and
// of these the ones that existed before.
CYPHER 5
UNWIND $rows AS row
MERGE (m:Memory {ledger: $ledger, id: row.id})
WITH m, row, m.seq AS before
WHERE coalesce(before <= row.seq, true)
SET m += row,
    m.date = datetime(row.date),
    m.until = datetime(row.until)
RETURN collect(row.id) AS written, collect(CASE WHEN before IS NOT NULL THEN row.id END) AS updated
