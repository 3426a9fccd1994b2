// Writes entities with their types and names. A chosen name, of an entity with a `seq`, stays.
CYPHER 5
UNWIND $rows AS row
MERGE (e:Entity {ledger: $ledger, id: row.id})
WITH e, row
WHERE e.type IS NULL OR e.type <> row.type OR (e.seq IS NULL AND e.name <> row.name)
SET e.partition = row.partition, e.key = row.key, e.type = row.type,
    e.name = CASE WHEN e.seq IS NULL THEN row.name ELSE e.name END
REMOVE e:Person:Organization:Place:Event:Object:Concept:Time:Other
FOREACH (_ IN CASE row.type WHEN 'Person' THEN [1] ELSE [] END | SET e:Person)
FOREACH (_ IN CASE row.type WHEN 'Organization' THEN [1] ELSE [] END | SET e:Organization)
FOREACH (_ IN CASE row.type WHEN 'Place' THEN [1] ELSE [] END | SET e:Place)
FOREACH (_ IN CASE row.type WHEN 'Event' THEN [1] ELSE [] END | SET e:Event)
FOREACH (_ IN CASE row.type WHEN 'Object' THEN [1] ELSE [] END | SET e:Object)
FOREACH (_ IN CASE row.type WHEN 'Concept' THEN [1] ELSE [] END | SET e:Concept)
FOREACH (_ IN CASE row.type WHEN 'Time' THEN [1] ELSE [] END | SET e:Time)
FOREACH (_ IN CASE row.type WHEN 'Other' THEN [1] ELSE [] END | SET e:Other)
