-- Everything that one workflow needs; times are microseconds since 1970 (UTC), money is in millionths.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE workflow (
    id              TEXT PRIMARY KEY,
    root_id         TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    limits          BLOB NOT NULL,
    handoffs        INTEGER NOT NULL DEFAULT 0,
    agents          TEXT NOT NULL DEFAULT '[]',
    tokens_spent    INTEGER NOT NULL DEFAULT 0,
    tokens_reserved INTEGER NOT NULL DEFAULT 0,
    cost_spent      INTEGER NOT NULL DEFAULT 0,
    cost_reserved   INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX workflow_conversation ON workflow (conversation_id);

CREATE TABLE handoff (
    seq             INTEGER PRIMARY KEY,
    id              TEXT NOT NULL,
    workflow_id     TEXT NOT NULL,
    parent_id       TEXT,
    part            TEXT,
    broadcast_group_id TEXT,
    line_id         TEXT NOT NULL,
    from_agent      TEXT NOT NULL,
    to_agent        TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN (/* states */)),
    priority        INTEGER NOT NULL,
    fingerprint     BLOB NOT NULL,
    attempt         INTEGER NOT NULL DEFAULT 0,
    epoch           INTEGER NOT NULL DEFAULT 0,
    reroutes        INTEGER NOT NULL DEFAULT 0,
    holder          TEXT,
    due_at          INTEGER,
    lease_until     INTEGER,
    timeout_at      INTEGER,
    reminded        INTEGER NOT NULL DEFAULT 0,
    tokens_reserved INTEGER NOT NULL DEFAULT 0,
    cost_reserved   INTEGER NOT NULL DEFAULT 0,
    tokens_spent    INTEGER NOT NULL DEFAULT 0,
    cost_spent      INTEGER NOT NULL DEFAULT 0,
    tokens_before   INTEGER NOT NULL DEFAULT 0,
    cost_before     INTEGER NOT NULL DEFAULT 0,
    approved_by     TEXT,
    answer_id       TEXT,
    audit_head      TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    spec            BLOB NOT NULL,
    result          BLOB
);
CREATE UNIQUE INDEX handoff_id ON handoff (id);
CREATE INDEX handoff_chain ON handoff (workflow_id, fingerprint);
CREATE UNIQUE INDEX handoff_part ON handoff (parent_id, part) WHERE part IS NOT NULL;
CREATE INDEX handoff_queue ON handoff (to_agent, priority, seq) WHERE state = 'offered';
CREATE INDEX handoff_held ON handoff (to_agent) WHERE state = 'claimed';
CREATE INDEX handoff_due ON handoff (due_at) WHERE due_at IS NOT NULL;

-- Only a record that brings in new parties is found by them; the others of its handoff are found through it.
CREATE TABLE audit (
    seq        INTEGER PRIMARY KEY,
    handoff_id TEXT NOT NULL,
    task_id    TEXT NOT NULL,
    from_agent TEXT NOT NULL,
    to_agent   TEXT NOT NULL,
    opens      INTEGER NOT NULL DEFAULT 1,
    record     BLOB NOT NULL,
    digest     BLOB NOT NULL
);
CREATE INDEX audit_handoff ON audit (handoff_id);
CREATE INDEX audit_task ON audit (task_id) WHERE opens;
CREATE INDEX audit_from ON audit (from_agent) WHERE opens;
CREATE INDEX audit_to ON audit (to_agent) WHERE opens;

CREATE TABLE sealed (
    n         INTEGER PRIMARY KEY,
    audit_seq INTEGER NOT NULL
);
CREATE UNIQUE INDEX sealed_row ON sealed (audit_seq);
CREATE TABLE segment (
    n         INTEGER PRIMARY KEY,
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    root      TEXT NOT NULL,
    previous  TEXT NOT NULL,
    sealed_at INTEGER NOT NULL
);

CREATE TABLE blob (
    digest BLOB PRIMARY KEY,
    data   BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE agent (
    id        TEXT PRIMARY KEY,
    profile   BLOB NOT NULL,
    available INTEGER NOT NULL DEFAULT 1,
    reason    TEXT NOT NULL DEFAULT '',
    seen_at   INTEGER
) WITHOUT ROWID;

CREATE TABLE breaker (
    subject   TEXT NOT NULL,
    failure   TEXT NOT NULL,
    failures  INTEGER NOT NULL,
    opens     INTEGER NOT NULL,
    opened_at INTEGER,
    probing   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (subject, failure)
) WITHOUT ROWID;

CREATE TABLE alert (
    id          TEXT PRIMARY KEY,
    subject     TEXT NOT NULL,
    text        TEXT NOT NULL,
    raised_at   INTEGER NOT NULL,
    resolved_at INTEGER,
    resolved_by TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX alert_open ON alert (subject) WHERE resolved_at IS NULL;

-- One row for each file and owner, granted or waiting; the order of the rows is the queue.
CREATE TABLE lock (
    seq     INTEGER PRIMARY KEY,
    path    TEXT NOT NULL,
    owner   TEXT NOT NULL,
    shared  INTEGER NOT NULL,
    granted INTEGER NOT NULL,
    file    TEXT NOT NULL,
    since   INTEGER NOT NULL,
    until   INTEGER
);
CREATE INDEX lock_owner ON lock (owner);
