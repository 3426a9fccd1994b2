// What was said in the last days of the conversation, and about whom?
// :param user => 'demo'
// :param days => 7
// The days are counted back from the newest memory. Follow NEXT from memory to memory for the order.
CYPHER 5
MATCH (m:Memory)
WHERE m.partition = $user OR m.partition ENDS WITH '/user:' + $user
WITH max(m.date) - duration({days: $days}) AS begin
MATCH (m:Memory)
WHERE (m.partition = $user OR m.partition ENDS WITH '/user:' + $user) AND m.date > begin
WITH m, begin ORDER BY m.at DESC LIMIT 20
OPTIONAL MATCH named = (m)-[:MENTIONS]->(e:Entity) WHERE NOT e:Concept
OPTIONAL MATCH next = (m)-[:NEXT]->(after:Memory) WHERE after.date > begin
RETURN m, named, next
LIMIT 100
