-- Available or not becomes a state with its history; who was away is suspect until somebody looks.

ALTER TABLE agent ADD COLUMN state TEXT NOT NULL DEFAULT 'available'
    CHECK (state IN ('available', 'suspect', 'unavailable'));
ALTER TABLE agent ADD COLUMN since INTEGER;
ALTER TABLE agent ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN ill INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN served INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN checked_at INTEGER;
UPDATE agent SET state = 'suspect', failures = 1 WHERE NOT available;
ALTER TABLE agent DROP COLUMN available;
