// Writes memories, unless the stored ones are newer (`seq`). Returns the ids of those written, and
// of these the ones that existed before.
CYPHER 5
UNWIND $rows AS row
MERGE (m:Memory {ledger: $ledger, id: row.id})
WITH m, row, m.seq AS before
WHERE coalesce(before <= row.seq, true)
SET m += row,
    m.date = datetime({epochMillis: row.at / 1000}),
    m.until = CASE WHEN row.valid_to IS NOT NULL THEN datetime({epochMillis: row.valid_to / 1000}) END
RETURN collect(row.id) AS written, collect(CASE WHEN before IS NOT NULL THEN row.id END) AS updated
