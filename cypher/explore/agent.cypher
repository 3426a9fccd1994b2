// What does an assistant (an agent) know, and about whom?
// :param agent => 'helper'
// Look at the names that its newest memories share. Memories of all users that it has spoken with are shown.
CYPHER 5
MATCH (m:Memory)
WHERE toLower(m.agent_id) = toLower($agent) AND m.valid_to IS NULL
WITH m ORDER BY m.at DESC LIMIT 25
OPTIONAL MATCH about = (m)-[:MENTIONS]->(e:Entity) WHERE NOT e:Concept
RETURN m, about
LIMIT 100
