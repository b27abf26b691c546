-- name: workflow_facts
SELECT limits, agents, created_at, handoffs, tokens_spent, tokens_reserved, cost_spent, cost_reserved
  FROM workflow WHERE id = ?;

-- Scalar subqueries instead of joins: each is one index look-up, several times faster here.

-- name: agent_facts
SELECT (SELECT profile FROM agent WHERE id = ?1), (SELECT iif(state = 'available', '', state || ': ' || reason) FROM agent WHERE id = ?1),
       (SELECT profile FROM agent WHERE id = ?2),
       (SELECT count(*) FROM handoff WHERE to_agent = ?1 AND state = 'claimed'),
       EXISTS (SELECT 1 FROM breaker);

-- name: by_part
SELECT id FROM handoff WHERE parent_id = ? AND part = ?;

-- name: root_of
SELECT root_id FROM workflow WHERE id = ?;

-- name: by_id
SELECT id FROM handoff WHERE id = ?;

-- name: seen_before
SELECT 1 FROM handoff WHERE workflow_id = ? AND fingerprint = ? AND to_agent = ?;

-- name: chain_repeats
WITH RECURSIVE chain (id, parent_id, from_agent, to_agent, fingerprint) AS (
    SELECT id, parent_id, from_agent, to_agent, fingerprint FROM handoff WHERE id = ?1
    UNION ALL
    SELECT h.id, h.parent_id, h.from_agent, h.to_agent, h.fingerprint FROM handoff h JOIN chain c ON h.id = c.parent_id
)
SELECT count(*) FILTER (WHERE from_agent = ?3), count(*) FROM chain WHERE fingerprint = ?4 AND to_agent = ?2;

-- name: breakers_of
SELECT subject, failure, failures, opens, opened_at, probing FROM breaker WHERE subject IN (?, ?);

-- name: insert_blob
INSERT OR IGNORE INTO blob (digest, data) VALUES (?, ?);

-- name: insert_workflow
INSERT INTO workflow (id, root_id, conversation_id, limits, agents, created_at) VALUES (?, ?, ?, ?, ?, ?);

-- name: insert_handoff
INSERT INTO handoff (id, workflow_id, parent_id, part, broadcast_group_id, line_id, from_agent, to_agent, state, priority,
                     fingerprint, due_at, audit_head, created_at, spec, result, answer_id, attempt, epoch, holder, lease_until,
                     timeout_at, tokens_reserved, cost_reserved)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_audit
INSERT INTO audit (handoff_id, task_id, from_agent, to_agent, opens, record, digest) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: add_up
UPDATE workflow SET handoffs = handoffs + ?, agents = coalesce(?, agents), tokens_reserved = tokens_reserved + ?,
       cost_reserved = cost_reserved + ?, tokens_spent = tokens_spent + ?, cost_spent = cost_spent + ?
 WHERE id = ?;

-- name: next_offered
SELECT priority, seq, id FROM handoff WHERE state = 'offered' AND to_agent = ? ORDER BY priority, seq LIMIT 1;

-- name: renew
UPDATE handoff SET lease_until = ?1, due_at = min(?1, coalesce(timeout_at, ?1))
 WHERE id = ?2 AND state = 'claimed' AND epoch = ?3;

-- name: stand
SELECT state, attempt, epoch, reroutes, holder, due_at, answer_id, to_agent, approved_by, audit_head, lease_until,
       timeout_at, reminded, tokens_reserved, cost_reserved, tokens_spent, cost_spent, tokens_before,
       cost_before, result, EXISTS (SELECT 1 FROM breaker), EXISTS (SELECT 1 FROM lock),
       EXISTS (SELECT 1 FROM alert WHERE subject = handoff.id AND resolved_at IS NULL),
       EXISTS (SELECT 1 FROM handoff p WHERE p.parent_id = handoff.id AND p.part IS NOT NULL)
  FROM handoff WHERE id = ?;

-- name: spec
SELECT spec FROM handoff WHERE id = ?;

-- name: put_row
UPDATE handoff SET state = ?, to_agent = ?, attempt = ?, epoch = ?, reroutes = ?, holder = ?, due_at = ?,
       lease_until = ?, timeout_at = ?, reminded = ?, tokens_reserved = ?, cost_reserved = ?, tokens_spent = ?,
       cost_spent = ?, tokens_before = ?, cost_before = ?, answer_id = ?, approved_by = ?, audit_head = ?, result = ?
 WHERE id = ?;

-- name: answer_line
UPDATE handoff SET answer_id = ? WHERE id = ? AND answer_id IS NULL;

-- name: parts
SELECT id, workflow_id, state FROM handoff WHERE parent_id = ? AND part IS NOT NULL AND answer_id IS NULL;

-- name: group_answers
SELECT p.id, a.result FROM handoff p LEFT JOIN handoff a ON a.id = p.answer_id
 WHERE p.parent_id = ? AND p.part IS NOT NULL AND p.broadcast_group_id = ? ORDER BY p.seq;

-- name: line_open
SELECT id FROM handoff WHERE workflow_id = ? AND line_id = ?
   AND state NOT IN ('completed', 'failed', 'cancelled', 'refused');

-- name: put_breaker
INSERT INTO breaker (subject, failure, failures, opens, opened_at, probing) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (subject, failure) DO UPDATE SET failures = excluded.failures, opens = excluded.opens,
       opened_at = excluded.opened_at, probing = excluded.probing;

-- name: drop_breaker
DELETE FROM breaker WHERE subject = ? AND failure = ?;

-- name: postpone
UPDATE handoff SET due_at = ? WHERE id = ? AND state = ? AND epoch = ?;

-- name: due
SELECT id FROM handoff WHERE due_at IS NOT NULL AND due_at <= ? ORDER BY due_at LIMIT ?;

-- name: held
SELECT id, holder FROM handoff WHERE state = 'claimed';

-- name: put_agent
INSERT INTO agent (id, profile, seen_at) VALUES (?1, ?2, ?3)
    ON CONFLICT (id) DO UPDATE SET profile = excluded.profile, state = iif(ill, state, 'available'),
       reason = iif(ill, reason, ''), since = iif(ill, since, NULL), failures = iif(ill, failures, 0),
       seen_at = excluded.seen_at, checked_at = iif(ill, checked_at, NULL);

-- name: health
SELECT state, reason, since, failures, ill, seen_at, served, checked_at FROM agent WHERE id = ?;

-- name: put_health
UPDATE agent SET state = ?, reason = ?, since = ?, failures = ?, ill = ?, seen_at = ?, served = ?, checked_at = ?
 WHERE id = ?;

-- name: settle_alerts
UPDATE alert SET resolved_at = ?, resolved_by = ? WHERE subject = ? AND resolved_at IS NULL;

-- name: put_alert
INSERT INTO alert (id, subject, text, raised_at) VALUES (?, ?, ?, ?);

-- name: locks
SELECT seq, path, owner, shared, granted, file, since, until FROM lock ORDER BY seq;

-- name: put_lock
INSERT INTO lock (path, owner, shared, granted, file, since, until) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: drop_lock
DELETE FROM lock WHERE seq = ?;

-- name: free_locks
DELETE FROM lock WHERE owner = ?;
