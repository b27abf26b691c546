-- What was pruned: of each run of segments that is gone, one signed record.

CREATE TABLE tombstone (
    n      INTEGER PRIMARY KEY,
    record BLOB NOT NULL
);
